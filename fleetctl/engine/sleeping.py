"""Objects that are over live in the store alone: they cost nothing until one is asked for.

Called by the loop, ticks and passes. A spec wakes an object through the store's watch, a due time
and the slow full scan through what is asked here, so that nothing is known in memory alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track


class Sleepers:
    """look_at_s: when the store is asked next who does not sleep; None = nobody wakes by itself."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.look_at_s: float | None = None

    def look(self, at_s: float) -> None:
        """Ask the store at at_s at the latest."""
        if self.look_at_s is None or at_s < self.look_at_s:
            self.look_at_s = at_s

    def is_due(self, now_s: float) -> bool:
        return self.look_at_s is not None and now_s >= self.look_at_s

    def wake(self, now_s: float) -> None:
        """Everything that does not sleep by now is looked at, be it in memory or not."""
        for uid in self.awake(now_s):
            self._state.queue.add(uid)

    def awake(self, now_s: float) -> list[str]:
        """The uids of all that must be looked at."""
        sleep = self._state.store.sleep
        uids = list(sleep.awake(now_s))
        self.look_at_s = sleep.next_at_s(now_s)
        return uids

    def put(self, track: Track) -> None:
        """It is over and has nothing under way: it leaves the memory, unless a newer spec came."""
        resource, until_s = track.resource, track.free_at_s
        store = self._state.store.sleep
        if not store.put(resource.uid, until_s=until_s, expected_version=resource.version):
            return
        self._state.tracks.let_go(resource.uid)
        self._state.dependents.let_go(resource.uid)
        self._state.queue.discard(resource.uid)
        if until_s is not None:
            self.look(until_s)
