"""The controller's socket: one line of JSON in, one out. Specs are written here, in the one process
that may.

Only the owner of the state directory is served: the socket is 0600 in a 0700 directory, and the
kernel names the peer's user. receive.py handles manifests, verbs.py requests on stored objects; the
loop decides on the consequences.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict

from fleetctl.apply.consent import NeedsConsent
from fleetctl.apply.cost.estimate import Forecaster
from fleetctl.apply.policies.report import PolicyDenied
from fleetctl.apply.request import (
    Reply,
    Request,
    actor_in,
    author_in,
    changes_by,
    keys_in,
    refuse_request_beyond,
)
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.state_paths import is_trusted_peer
from fleetctl.common.version import VERSION
from fleetctl.daemon.adopt import OrphanAdopter
from fleetctl.daemon.receive import ManifestReceiver
from fleetctl.daemon.verbs import RequestVerbs
from fleetctl.engine.capacity.price_book import PriceBook
from fleetctl.engine.execute.retention import Retention
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.engine.kinds.traces import RunTraces
from fleetctl.engine.shared.boundary import run_reported
from fleetctl.engine.shared.engine_state import EngineState
from fleetctl.manifest import ManifestErrors
from fleetctl.manifest.problems import list_shown
from fleetctl.retention.survey import build_report

log = logging.getLogger("fleetctl.api")

# The CLI's files are capped far below; JSON escapes may double them.
REQUEST_BYTES_MAX = 256 * 1024 * 1024
REQUEST_WAIT_S = 30.0

RequestHandler = Callable[[Request], Awaitable[Reply]]


class ControllerApi:
    """The handler of requests. shutdown: called once when a client asks the controller to end.
    forecaster: None = no costs are reported. adopter: None = no sandbox can be adopted. retention:
    None = `gc` removes nothing. traces: None = no request is traced. replaced: handlers of verbs,
    instead of those of the store.
    """

    def __init__(
        self,
        state: EngineState,
        market: PriceBook,
        secrets: SecretValues,
        *,
        shutdown: Callable[[], None],
        forecaster: Forecaster | None = None,
        adopter: OrphanAdopter | None = None,
        retention: Retention | None = None,
        traces: RunTraces | None = None,
        replaced: Mapping[str, RequestHandler] | None = None,
    ) -> None:
        self._state = state
        self._shutdown = shutdown
        self._retention = retention
        receiver, verbs = (
            ManifestReceiver(state, market, secrets, forecaster, traces=traces),
            RequestVerbs(state, adopter, traces=traces),
        )
        self.last_request_at_s = state.clock.now_s()
        self._verbs: dict[str, RequestHandler] = {
            "ping": self._ping,
            "apply": receiver.apply,
            "delete": verbs.delete,
            "abandon": verbs.abandon,
            "create": verbs.create,
            "reconcile": verbs.reconcile,
            "suspend": verbs.suspend,
            "resume": verbs.resume,
            "retry": verbs.retry,
            "set": receiver.set,
            "adopt": verbs.adopt,
            "gc": self._gc,
            "shutdown": self._end,
            **(replaced or {}),
        }

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Serves a bound socket until the server is closed."""
        return await asyncio.start_unix_server(
            self._connected, sock=listener, limit=REQUEST_BYTES_MAX
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not is_trusted_peer(writer.get_extra_info("socket")):
                return
            async with asyncio.timeout(REQUEST_WAIT_S):
                line = await reader.readuntil(b"\n")
            reply = await self.answer(line)
            writer.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
            await writer.drain()
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            log.warning("request not answered", extra={"error": type(error).__name__})
        finally:
            writer.close()

    async def answer(self, line: bytes) -> Reply:
        """Returns the reply to one request; errors are replies too."""
        self.last_request_at_s = self._state.clock.now_s()
        try:
            request = json.loads(line)
            verb = self._verbs.get(str(request.get("verb"))) if isinstance(request, dict) else None
            if verb is None:
                return _build_refusal(["the controller does not know this request"], 2)
            actor = actor_in(request)
            if actor is not None:
                refuse_request_beyond(actor, request, self._state.store)
            reply: Reply | None = await run_reported(verb(request), what="request")
            author = author_in(request)
            if author and reply is not None and reply.get("ok"):
                self._name_author(author, request, reply)
            return reply or _build_refusal(["the controller failed at this; its log shows how"], 1)
        except NeedsConsent as error:
            refusal = _build_refusal([str(error)], error.exit_code, error.hint)
            return {**refusal, "losses": list(error.losses)}
        except (ManifestErrors, PolicyDenied) as error:
            shown = list_shown(error.problems)
            refusal = _build_refusal([str(it) for it in shown], error.exit_code, error.hint)
            return {**refusal, "findings": [asdict(it) for it in shown]}
        except FleetctlError as error:
            return _build_refusal([str(error)], error.exit_code, error.hint)
        except (ValueError, RecursionError) as error:
            return _build_refusal([f"the request has the wrong form: {error!r}"], 2)

    def _name_author(self, author: str, request: Request, reply: Reply) -> None:
        """Adds an event with the author's name to each object that the request changed."""
        for key, uid, sentence in changes_by(author, request, reply):
            if not uid:
                ((kind, name, namespace),) = keys_in({"keys": [key]})
                found = self._state.store.resources.get(kind, name, namespace)
                uid = found.uid if found is not None else ""
            if uid:
                self._state.say(uid, "Requested", sentence)
        self._state.inbox.wake()

    async def _ping(self, request: Request) -> Reply:
        figures = self._state.figures.document() | {"due": len(self._state.queue)}
        return {
            **({"figures": figures} if request.get("figures") else {}),
            "ok": True,
            "pid": os.getpid(),
            "ready": True,
            "live": self._state.live_runs(),
            "version": VERSION,
            "loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
        }

    async def _gc(self, request: Request) -> Reply:
        if self._retention is None:
            raise UsageError("this controller keeps nothing on a disk")
        return {"ok": True, "sorts": build_report(await self._retention.round())}

    async def _end(self, request: Request) -> Reply:
        asyncio.get_running_loop().call_soon(self._shutdown)
        return {"ok": True, "pid": os.getpid(), "live": self._state.live_runs()}


def _build_refusal(
    errors: list[str],
    code: int,
    hint: str = "",
) -> Reply:
    return {"ok": False, "code": code, "errors": errors, "hint": hint}
