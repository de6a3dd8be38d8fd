"""Finished objects live in the store alone: they take no memory until one is requested.

Called by the loop, ticks and passes. A spec wakes an object through the store's watch, a due time
and the slow full scan through the queries here, so that no state is in memory alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


class Sleepers:
    """look_at_s: when to query the store for objects to wake; None = no object wakes by itself."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self.look_at_s: float | None = None

    def look(self, at_s: float) -> None:
        """Queries the store at at_s at the latest."""
        if self.look_at_s is None or at_s < self.look_at_s:
            self.look_at_s = at_s

    def is_due(self, now_s: float) -> bool:
        return self.look_at_s is not None and now_s >= self.look_at_s

    def wake(self, now_s: float) -> None:
        """Looks at everything that does not sleep by now, in memory or not."""
        for uid in self.awake(now_s):
            self._state.queue.add(uid)

    def awake(self, now_s: float) -> list[str]:
        """Returns the uids of all objects that must be looked at."""
        sleep = self._state.store.sleep
        uids = list(sleep.awake(now_s))
        self.look_at_s = sleep.next_at_s(now_s)
        return uids

    def put(self, track: Track) -> None:
        """Moves a finished object without calls under way out of memory, unless a newer spec
        came.
        """
        resource = track.resource
        until_s = track.free_at_s
        store = self._state.store.sleep
        if not store.put(resource.uid, until_s=until_s, expected_version=resource.version):
            return
        self._state.tracks.let_go(resource.uid)
        self._state.dependents.let_go(resource.uid)
        self._state.queue.discard(resource.uid)
        if until_s is not None:
            self.look(until_s)
