"""The controller's socket: one line of JSON in, one out. Specs are written here, in the one
process that may.

Only the owner of the state directory is served: the socket is 0600 in a 0700 directory, and the
kernel is asked who connected. What arrives as manifests is in receive.py, what is done to objects
that are there in verbs.py; what it all leads to, the loop decides.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable

from fleetctl.apply.consent import NeedsConsent
from fleetctl.apply.forecast import Forecaster
from fleetctl.apply.request.fields import Reply, Request
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.version import VERSION
from fleetctl.daemon.adoption.adopt import Adopter
from fleetctl.daemon.receive import Receiver
from fleetctl.daemon.verbs import Verbs
from fleetctl.engine.capacity.prices import Market
from fleetctl.engine.execute.retention import Retention
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.engine.shared.boundary import reported
from fleetctl.engine.shared.state import State
from fleetctl.manifest import ManifestErrors
from fleetctl.retention.report import report

log = logging.getLogger("fleetctl.api")

# The CLI's files are capped far below; JSON escapes may double them.
REQUEST_BYTES_MAX = 256 * 1024 * 1024
REQUEST_WAIT_S = 30.0


class Api:
    """shutdown: called once when a client asks the controller to end. forecaster: None = nothing
    is said of costs. adopter: None = no sandbox can be adopted. retention: None = `gc` lets go of
    nothing.
    """

    def __init__(
        self,
        state: State,
        market: Market,
        secrets: SecretValues,
        *,
        shutdown: Callable[[], None],
        forecaster: Forecaster | None = None,
        adopter: Adopter | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._state = state
        self._shutdown, self._retention = shutdown, retention
        receiver, verbs = Receiver(state, market, secrets, forecaster), Verbs(state, adopter)
        self.last_request_at_s = state.clock.now_s()
        self._verbs: dict[str, Callable[[Request], Awaitable[Reply]]] = {
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
        }

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Answer on a bound socket until the server is closed."""
        return await asyncio.start_unix_server(
            self._connected, sock=listener, limit=REQUEST_BYTES_MAX
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _is_owner(writer.get_extra_info("socket")):
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
        """The reply to one request; errors are replies too."""
        self.last_request_at_s = self._state.clock.now_s()
        try:
            request = json.loads(line)
            verb = self._verbs.get(str(request.get("verb"))) if isinstance(request, dict) else None
            if verb is None:
                return _refusal(["the controller does not know this request"], 2)
            reply: Reply | None = await reported(verb(request), what="request")
            return reply or _refusal(["the controller failed at this; its log tells how"], 1)
        except NeedsConsent as error:
            refusal = _refusal([str(error)], error.exit_code, error.hint)
            return {**refusal, "losses": list(error.losses)}
        except ManifestErrors as error:
            # Its text has every problem as a line for people, hints between them.
            return _refusal(str(error).split("\nerror: "), 2, error.hint)
        except FleetctlError as error:
            return _refusal([str(error)], error.exit_code, error.hint)
        except (ValueError, RecursionError) as error:
            return _refusal([f"the request has the wrong form: {error!r}"], 2)

    async def _ping(self, request: Request) -> Reply:  # noqa: ARG002
        return {
            "ok": True,
            "pid": os.getpid(),
            "ready": True,
            "live": self._state.live_runs(),
            "version": VERSION,
            "loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
        }

    async def _gc(self, request: Request) -> Reply:  # noqa: ARG002
        if self._retention is None:
            raise UsageError("this controller keeps nothing on a disk")
        return {"ok": True, "sorts": report(await self._retention.round())}

    async def _end(self, request: Request) -> Reply:  # noqa: ARG002
        asyncio.get_running_loop().call_soon(self._shutdown)
        return {"ok": True, "pid": os.getpid(), "live": self._state.live_runs()}


def _refusal(errors: list[str], code: int, hint: str = "") -> Reply:
    return {"ok": False, "code": code, "errors": errors, "hint": hint}


def _is_owner(connection: socket.socket) -> bool:
    """True for our own user and for root, by the kernel's word; where it gives none, the file's
    mode decides.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return uid in (os.getuid(), 0)
