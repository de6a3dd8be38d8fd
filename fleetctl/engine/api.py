"""The controller's socket: one line of JSON in, one out. Wishes are written here, in the one
process that may.

Only the owner of the state directory is served: the socket is 0600 in a 0700 directory, and the
kernel is
asked who connected. What a request means is in wishes.py; what it leads to, the loop decides.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.engine import applying, consent, wishes
from fleetctl.engine.adopting import Adopter, stray_of
from fleetctl.engine.applying import Order
from fleetctl.engine.consent import NeedsConsent
from fleetctl.engine.forecasts import Forecast, Forecaster, may_cost, noted
from fleetctl.engine.functions import REASON_MISSING as FUNCTION_MISSING
from fleetctl.engine.guard import reported
from fleetctl.engine.loop import Engine
from fleetctl.engine.orders import (
    approved_in,
    declared_in,
    expect,
    namespace_of,
    order_of,
    parallelism_of,
    with_declared,
)
from fleetctl.engine.retrying import Choice, retry
from fleetctl.engine.secrets import REASON_MISSING, SecretValues
from fleetctl.engine.setting import manifest_with
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.manifest import Document, ManifestErrors, load
from fleetctl.version import VERSION
from specs.kinds import KINDS, find_kind
from specs.namespaces import DEFAULT_NAMESPACE, object_key, split_key
from specs.provider import ProviderSpec
from specs.scalars import Spec
from specs.secret import SecretSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

log = logging.getLogger("fleetctl.api")

REQUEST_BYTES_MAX = (
    256 * 1024 * 1024
)  # the CLI's files are capped far below; JSON escapes may double them
REQUEST_WAIT_S = 30.0

Reply = dict[str, object]
Request = Mapping[str, object]


class Api:
    """shutdown: called once when a client asks the controller to end. forecaster: None = nothing
    is said of costs. adopter: None = no sandbox can be adopted.
    """

    def __init__(
        self,
        engine: Engine,
        secrets: SecretValues,
        *,
        shutdown: Callable[[], None],
        forecaster: Forecaster | None = None,
        adopter: Adopter | None = None,
    ) -> None:
        self._engine = engine
        self._secrets = secrets
        self._shutdown = shutdown
        self._forecaster = forecaster
        self._adopter = adopter
        self.last_request_at_s = engine.clock.now_s()
        self._verbs: dict[str, Callable[[Request], Awaitable[Reply]]] = {
            "ping": self._ping,
            "apply": self._apply,
            "delete": self._delete,
            "suspend": self._suspend,
            "resume": self._resume,
            "retry": self._retry,
            "set": self._set,
            "adopt": self._adopt,
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
        self.last_request_at_s = self._engine.clock.now_s()
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

    # -- verbs
    # ---------------------------------------------------------------------------------------

    async def _ping(self, request: Request) -> Reply:  # noqa: ARG002
        live = self._engine.live_runs()
        return {"ok": True, "pid": os.getpid(), "ready": True, "live": live, "version": VERSION}

    async def _apply(self, request: Request) -> Reply:
        documents = [_document(item) for item in _list(request, "documents")]
        environment = request.get("env")
        manifests = await asyncio.to_thread(load, documents, namespace_of(request))
        self._check_providers(manifests)
        wanted = tuple(name for manifest in manifests for name in _variables(manifest.spec))
        if wanted and "env" not in request and not request.get("dryRun"):
            # The shell of the one who applies knows best, also where we have an older value.
            return {"ok": False, "needEnv": list(dict.fromkeys(wanted))}
        given = environment if isinstance(environment, dict) else {}
        values = {name: str(given[name]) for name in wanted if name in given}
        order, forecasts = await self._prepared(request, manifests)
        results = self._carry_out(request, manifests, values, order, forecasts)
        said = {key: list(found.lines) for key, found in forecasts.items() if found.lines}
        reply: Reply = {"ok": True, "results": results, "warnings": _warnings(manifests)}
        return {**reply, "forecasts": said} if said else reply

    async def _prepared(
        self, request: Request, manifests: list[Manifest]
    ) -> tuple[Order, Mapping[str, Forecast]]:
        """How to apply them and what that will cost: all that takes its time, found out before the
        change itself, which waits for nothing.
        """
        engine = self._engine
        revisions = await asyncio.to_thread(applying.revisions_of, manifests)
        providers = with_declared(engine.providers, declared_in(manifests))
        order = replace(
            order_of(request), parallelism=parallelism_of(providers), revisions=revisions
        )
        forecaster = self._forecaster
        if forecaster is None or not may_cost(manifests, providers, engine.market.said):
            return order, {}
        return order, await asyncio.to_thread(forecaster, manifests, order)

    def _carry_out(
        self,
        request: Request,
        manifests: list[Manifest],
        values: Mapping[str, str],
        order: Order,
        forecasts: Mapping[str, Forecast],
    ) -> list[Mapping[str, str]]:
        """Store what the request wishes for, unless it is a dry run; only then the values of
        secrets are taken over. Raises NeedsConsent.
        """
        engine = self._engine
        now_s = engine.clock.now_s()
        changes = noted(applying.propose(engine.store, manifests, order, now_s), forecasts)
        expect(request, engine.store, changes)
        if request.get("dryRun"):
            return applying.outcomes_of(changes)
        if not request.get("yes"):
            consent.check(changes, approved_in(request), now_s)
        self._secrets.learn(values)
        applying.commit(engine.store, changes, now_s)
        for change in changes:
            engine.poke(change.after.uid)
            engine.hurry_object(change.after.uid)
        for kind, reason in _AWAITED.items():
            if any(manifest.kind == kind for manifest in manifests):
                engine.hurry(reason)
        return applying.outcomes_of(changes)

    async def _delete(self, request: Request) -> Reply:
        results = []
        keys = _keys(request)
        store = self._engine.store
        for wanted in keys:
            wishes.find(store, *wanted)  # all are there, or none is deleted
        for kind, name, namespace in keys:
            now_s = self._engine.clock.now_s()
            uid = wishes.delete(store, kind, name, now_s, namespace=namespace)
            self._engine.poke(uid)
            key = object_key(kind, name, namespace)
            results.append({"key": key, "outcome": "deleted", "message": "", "uid": uid})
        return {"ok": True, "results": results}

    async def _suspend(self, request: Request) -> Reply:
        return self._set_suspend(request, wanted=True)

    async def _resume(self, request: Request) -> Reply:
        return self._set_suspend(request, wanted=False)

    def _set_suspend(self, request: Request, *, wanted: bool) -> Reply:
        engine = self._engine
        results = []
        word = "suspended" if wanted else "resumed"
        for kind, name, namespace in _keys(request):
            changed = wishes.suspend(
                engine.store,
                kind,
                name,
                engine.clock.now_s(),
                wanted=wanted,
                namespace=namespace,
            )
            outcome = word if changed else "unchanged"
            key = object_key(kind, name, namespace)
            results.append({"key": key, "outcome": outcome, "message": ""})
        engine.poke_wishes()
        return {"ok": True, "results": results}

    async def _retry(self, request: Request) -> Reply:
        which = request.get("which")
        if which not in ("failed", "index", "all"):
            raise UsageError("a retry needs `which`: failed, index or all")
        chosen = _ranges(_list(request, "indexes")) if which == "index" else ()
        choice = Choice(which, chosen, str(request.get("request") or ""))
        results = []
        for kind, name, namespace in _keys(request):
            now_s = self._engine.clock.now_s()
            done = retry(self._engine.store, kind, name, choice, now_s, namespace=namespace)
            results.append(
                {"key": done.key, "units": done.units, "live": done.live, "unit": KINDS[kind].unit}
            )
        self._engine.poke_wishes()
        return {"ok": True, "results": results}

    async def _adopt(self, request: Request) -> Reply:
        if self._adopter is None:
            raise UsageError("this controller adopts nothing")
        strays = [stray_of(item) for item in _list(request, "sandboxes")]
        done = await self._adopter.adopt(strays, str(request.get("into") or ""))
        results = [
            {
                "run": it.stray.run,
                "key": it.key,
                "index": it.index,
                "made": it.made,
                "why": it.why,
                "hint": it.hint,
            }
            for it in done
        ]
        return {"ok": True, "results": results}

    async def _set(self, request: Request) -> Reply:
        ((kind, name, namespace),) = _keys({"keys": [request.get("key")]})
        store = self._engine.store
        fields = [str(field) for field in _list(request, "fields")]
        draft = manifest_with(store, kind, name, fields, namespace=namespace)
        self._check_providers([draft])
        order, forecasts = await self._prepared(request, [draft])
        # Read again: somebody else may have changed the object meanwhile.
        manifest = manifest_with(store, kind, name, fields, namespace=namespace)
        results = self._carry_out(request, [manifest], {}, order, forecasts)
        return {"ok": True, "results": results}

    async def _end(self, request: Request) -> Reply:  # noqa: ARG002
        asyncio.get_running_loop().call_soon(self._shutdown)
        return {"ok": True, "pid": os.getpid(), "live": self._engine.live_runs()}

    def _check_providers(self, manifests: list[Manifest]) -> None:
        """A placement whose providers nobody has declared would wait for ever: say so now."""
        known = with_declared(self._engine.providers, declared_in(manifests))
        for manifest in manifests:
            placement = getattr(manifest.spec, "placement", None)
            names = [it.provider for it in placement.candidates] if placement else []
            if names and not any(name in known for name in names):
                wrong = " or ".join(f"`{name}`" for name in names)
                raise UsageError(
                    f"{manifest.path}:{manifest.line}: {manifest.key}: "
                    f"there is no provider {wrong}",
                    hint=f"there is {', '.join(f'`{name}`' for name in sorted(known))}; "
                    "`kind: Provider` with a `type` declares another account",
                )


# Kinds that starts may wait for, and the reason that they wait with.
_AWAITED = {"Secret": REASON_MISSING, "Function": FUNCTION_MISSING}


def _variables(spec: Spec) -> tuple[str, ...]:
    """Of the shell of who applies, that a Secret or an account has its values from."""
    if isinstance(spec, SecretSpec):
        return spec.from_env
    if isinstance(spec, ProviderSpec) and spec.account is not None:
        return spec.account.variables
    return ()


def _document(item: object) -> Document:
    if not isinstance(item, dict) or "path" not in item or "dir" not in item:
        raise UsageError("a document must be {path, text, dir}")
    return Document(
        path=str(item["path"]),
        text=str(item.get("text", "")),
        dir=str(item["dir"]),
        refused=str(item.get("refused", "")),
        hint=str(item.get("hint", "")),
    )


def _list(request: Request, name: str) -> list[object]:
    value = request.get(name)
    if not isinstance(value, list):
        raise UsageError(f"the request needs a list `{name}`")
    return value


def _ranges(pairs: list[object]) -> tuple[range, ...]:
    """Of [first, last] pairs. Raises ValueError."""
    found = [[int(number) for number in pair] for pair in pairs if isinstance(pair, list)]
    if len(found) < len(pairs) or any(len(it) != 2 or it[0] > it[1] for it in found):
        raise ValueError("indexes are pairs of a first and a last one")
    return tuple(range(first, last + 1) for first, last in found)


def _keys(request: Request) -> list[tuple[str, str, str]]:
    """(kind, name, namespace) of each key; kinds by any of their names."""
    out = []
    for key in _list(request, "keys"):
        word, name, namespace = split_key(str(key))
        kind = find_kind(word)
        if kind is None or not name:
            raise UsageError(f"`{key}` is not KIND/NAME")
        out.append((kind.name, name, namespace if kind.namespaced else DEFAULT_NAMESPACE))
    return out


def _warnings(manifests: list[Manifest]) -> list[str]:
    return [text for manifest in manifests for text in manifest.warnings]


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
