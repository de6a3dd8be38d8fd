"""Servers of endpoints that are Functions: where each is asked, why it is not there yet, whether a
budget pays for its containers, and how many of those cost now. Called by endpoints.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.money.budget import Denied
from fleetctl.providers.contract.endpoints import Serving
from fleetctl.specs.kinds.endpoint import Server
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.namespaces import asset_name, object_key

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track

KIND = "Function"
MISSING, NO_PORT, NOT_READY = "FunctionMissing", "FunctionWithoutPort", "FunctionNotReady"
COUNT_S = 5.0  # between two counts of containers that may be there


@dataclass(frozen=True, slots=True)
class Behind:
    """One server as the gateway is to have it. key: what its container asks for."""

    row: Mapping[str, Any]
    url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lack:
    """Why there is none. soon: it may have been there a moment ago, for an earlier controller."""

    reason: str
    message: str
    hint: str = ""
    soon: bool = False


class ServedFunctions:
    """denied: why the budgets do not pay for a container of a Function, or for more of it."""

    def __init__(self, state: State, *, denied: Callable[[Track], Denied | None]) -> None:
        self._state, self._denied = state, denied
        self._counted_at_s: dict[str, float] = {}  # by uid

    def behind(self, server: Server, namespace: str) -> Behind | Lack:
        assert server.function is not None
        key = object_key(KIND, server.function, namespace)
        track = self._track(server.function, namespace)
        if track is None:
            hint = f"apply a `kind: Function` of the name `{server.function}` with a `port`"
            return Lack(MISSING, f"{key} is not declared", hint)
        spec = _spec(track)
        if spec.port is None:
            hint = "give it `port` and `command`, or name a server by its `url`"
            return Lack(NO_PORT, f"{key} has no `port`: tasks call it, and nobody asks it", hint)
        address = track.asset.address
        if address is None:
            return _undeployed(key, track)
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
        return Behind(row, address.url, address.key)

    async def count(self, awake: Iterable[str]) -> None:
        """Ask their providers for the containers of those that may have any. awake: URLs at which
        the gateway asked of late. Raises nothing: what is not told is asked again.
        """
        awake, now_s = set(awake), self._state.clock.now_s()
        for track in [it for it in self._state.tracks.assets.values() if _serves(it)]:
            asset, address, uid = track.asset, track.asset.address, track.resource.uid
            if address is None or (asset.containers == 0 and address.url not in awake):
                continue  # it sleeps, and nobody asks for it
            if address.url in awake and not asset.containers:
                self._take(track, 1)  # the first is told by the gateway: it may be gone soon
            if now_s < self._counted_at_s.get(uid, 0.0) + COUNT_S:
                continue
            self._counted_at_s[uid] = now_s
            backend = self._state.providers.get(_spec(track).provider)
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

    def told(self, failed: Mapping[str, str]) -> None:
        """failed: sentences by URL, of containers whose server did not become ready."""
        for track in self._state.tracks.assets.values():
            address = track.asset.address
            warning = failed.get(address.url, "") if address is not None else ""
            if address is not None and warning != track.asset.warning:
                track.asset.warning = warning
                self._state.poke(track.resource.uid)

    def _track(self, name: str, namespace: str) -> Track | None:
        """The one that is not deleted, else one that serves to its last user."""
        every = self._state.tracks.assets.values()
        of_name = [
            it
            for it in every
            if (it.resource.kind, it.resource.name, it.resource.namespace)
            == (KIND, name, namespace)
        ]
        living = (it for it in of_name if it.resource.deleted_at_s is None)
        return next(living, of_name[0] if of_name else None)


def _undeployed(key: str, track: Track) -> Lack:
    """One that was there goes on serving who asks it, while its provider does not answer us."""
    soon = "url" in track.status
    if track.asset.problem:
        return Lack(NOT_READY, f"{key} cannot be deployed: {track.asset.problem}", soon=soon)
    waits = str(track.status.get("message") or "")
    if waits and track.status.get("phase") == "Pending":
        return Lack(NOT_READY, f"{key} is not deployed: {waits}", soon=soon)
    return Lack(NOT_READY, f"{key} is being deployed", soon=soon)


def _serves(track: Track) -> bool:
    return track.resource.kind == KIND and getattr(track.spec, "port", None) is not None


def _spec(track: Track) -> FunctionSpec:
    spec = track.spec or parse_spec(KIND, track.resource.spec)
    assert isinstance(spec, FunctionSpec)
    return spec
