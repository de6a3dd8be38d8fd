"""Manages servers of endpoints that are Functions: the address of each, why it is not ready yet, if
a budget pays for its containers, and how many containers cost now. Called by endpoints.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.budget import BudgetDenial
from fleetctl.providers.contract.base import Serving
from fleetctl.specs.kinds.endpoint import EndpointServer
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.namespaces import asset_name, object_key

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track

KIND = "Function"
MISSING = "FunctionMissing"
NO_PORT = "FunctionWithoutPort"
NOT_READY = "FunctionNotReady"
COUNT_S = 5.0  # between two counts of containers that may be there


@dataclass(frozen=True, slots=True)
class FunctionServer:
    """One server as the gateway should have it. key: the key that its container requires."""

    row: Mapping[str, Any]
    url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServerLack:
    """The reason why there is no server. soon: it may have been ready a moment ago, for an earlier
    controller.
    """

    reason: str
    message: str
    hint: str = ""
    soon: bool = False


class ServedFunctions:
    """denied: why the budgets do not pay for a first container of a Function, or for further
    ones.
    """

    def __init__(
        self, state: EngineState, *, denied: Callable[[Track], BudgetDenial | None]
    ) -> None:
        self._state = state
        self._denied = denied
        self._counted_at_s: dict[str, float] = {}  # by uid

    def behind(self, server: EndpointServer, namespace: str) -> FunctionServer | ServerLack:
        assert server.function is not None
        key = object_key(KIND, server.function, namespace)
        track = self._track(server.function, namespace)
        if track is None:
            hint = f"apply a `kind: Function` of the name `{server.function}` with a `port`"
            return ServerLack(MISSING, f"{key} is not declared", hint)
        spec = _read_spec(track)
        if spec.port is None:
            hint = "give it `port` and `command`, or name a server by its `url`"
            return ServerLack(
                NO_PORT, f"{key} has no `port`: tasks call it, and no Endpoint can", hint
            )
        address = track.asset.address
        if address is None:
            return _explain_undeployed(key, track)
        denied = self._denied(track)
        row = {
            "url": address.url,
            "slots": server.slots or spec.concurrency * (spec.max_containers or 1),
            "function": {
                "name": key,
                "startupSeconds": spec.startup_timeout_seconds,
                "scaledownSeconds": spec.scaledown_seconds,
                "warm": spec.min_containers > 0,
                "blocked": f"{denied.reason}: {denied.message}" if denied is not None else "",
            },
        }
        if server.api is not None:
            row["api"] = server.api
        return FunctionServer(row, address.url, address.key)

    async def count(self, awake: Iterable[str]) -> None:
        """Requests the number of containers from the providers of Functions that may have any.
        awake: URLs that the gateway called recently. Raises no error: a missing count is requested
        again.
        """
        awake = set(awake)
        now_s = self._state.clock.now_s()
        for track in filter(_is_server, self._state.tracks.of_kind(KIND)):
            asset, address, uid = track.asset, track.asset.address, track.resource.uid
            if address is None or (asset.containers == 0 and address.url not in awake):
                continue  # it sleeps, and has no callers
            if address.url in awake and not asset.containers:
                self._take(track, 1)  # the first is reported by the gateway: it may be gone soon
            if now_s < self._counted_at_s.get(uid, 0.0) + COUNT_S:
                continue
            self._counted_at_s[uid] = now_s
            backend = self._state.providers.get(_read_spec(track).provider)
            if not isinstance(backend, Serving):
                continue
            name = asset_name(track.resource.name, track.resource.namespace)
            try:
                found = await backend.containers(name)
            except (Refused, Unavailable):
                continue
            self._take(track, max(found, int(address.url in awake)))

    def _take(self, track: Track, found: int) -> None:
        if found != track.asset.containers:
            track.asset.containers = found
            self._state.poke(track.resource.uid)

    def record_failures(self, failed: Mapping[str, str]) -> None:
        """Records on each Function why its server did not become ready. failed: sentences by
        URL, for containers whose server did not become ready.
        """
        for track in self._state.tracks.assets.values():
            address = track.asset.address
            warning = failed.get(address.url, "") if address is not None else ""
            if address is not None and warning != track.asset.warning:
                track.asset.warning = warning
                self._state.poke(track.resource.uid)

    def _track(self, name: str, namespace: str) -> Track | None:
        """Returns the Function that is not deleted, else one that serves to its last user."""
        every = self._state.tracks.assets.values()
        of_name = [
            it
            for it in every
            if (it.resource.kind, it.resource.name, it.resource.namespace)
            == (KIND, name, namespace)
        ]
        living = (it for it in of_name if it.resource.deleted_at_s is None)
        return next(living, of_name[0] if of_name else None)


def _explain_undeployed(key: str, track: Track) -> ServerLack:
    """Returns why the server is missing. A deployed one goes on serving its callers, while its
    provider does not reply to us.
    """
    soon = "url" in track.status
    if track.asset.problem:
        problem = track.asset.problem.prefixed(f"{key} cannot be deployed: ")
        return ServerLack(NOT_READY, problem.text, problem.hint, soon=soon)
    waits = str(track.status.get("message") or "")
    if waits and track.status.get("phase") == "Pending":
        return ServerLack(NOT_READY, f"{key} is not deployed: {waits}", soon=soon)
    return ServerLack(NOT_READY, f"{key} is being deployed", soon=soon)


def _is_server(track: Track) -> bool:
    return getattr(track.spec, "port", None) is not None


def _read_spec(track: Track) -> FunctionSpec:
    spec = track.spec or parse_spec(KIND, track.resource.spec)
    assert isinstance(spec, FunctionSpec)
    return spec
