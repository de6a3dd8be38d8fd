"""Moves finished objects out of memory until they are needed again, and retries waiting starts at
once when their obstacle may be gone.

A finished object lives in the store alone. Three events load it again: a new spec, which the
store's watch reports, its due time, and the slow full scan; the last two are queries here.
"""

from __future__ import annotations

from fleetctl.controllers.model import Run
from fleetctl.engine.shared.engine_state import EngineState
from fleetctl.tracking.track import Track

# Reasons for a start to wait until a sandbox of the same account ends.
WAITS_FOR_ROOM = frozenset({"Quota", "NoCapacity"})


class Sleepers:
    """The finished objects in the store. look_at_s: when to query for due ones; None = never."""

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
        """Queues every object that is due, whether it is in memory or not."""
        for uid in self.awake(now_s):
            self._state.queue.add(uid)

    def awake(self, now_s: float) -> list[str]:
        """Returns the uids of all objects that are unfinished or due."""
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


def nudge_starts(state: EngineState, reason: str) -> None:
    """Retries at once the starts that wait for this reason, as its cause may have changed."""
    for uid, track in state.tracks.items():
        _nudge_agent(state, track)
        for run in [run for run, wait in track.waits.items() if wait.reason == reason]:
            if run in track.calls:
                track.calls[run].retry_at_s = 0.0
                state.poke(uid)


def nudge_object(state: EngineState, uid: str) -> None:
    """Retries the starts of an object that a user applied again: their obstacle may be gone."""
    track = state.tracks.get(uid)
    if track is not None:
        track.forget_places()
        _nudge_agent(state, track)
    for run in list(track.waits) if track is not None else ():
        nudge_start(state, run)


def _nudge_agent(state: EngineState, track: Track) -> None:
    """Wakes the agent of a sweep at W&B, as its key may have changed."""
    if track.work is not None and track.work.controller.handed is not None:
        state.hurried.add(track.resource.uid)
        state.poke(track.resource.uid)


def nudge_start(state: EngineState, run: str) -> None:
    """Retries one start whose obstacle may be gone."""
    uid = state.owner_of.get(run)
    track = state.tracks.get(uid) if uid is not None else None
    if track is not None and run in track.waits and run in track.calls:
        track.calls[run].retry_at_s = 0.0
        state.poke(track.resource.uid)


def nudge_freed(state: EngineState, provider: str) -> None:
    """Retries one start at once after a sandbox of ours ended at the provider: of the starts that
    wait there for capacity, the one that waits longest.
    """
    found: tuple[float, str] | None = None
    for track in state.tracks.values():
        for run, wait in track.waits.items():
            call = track.calls.get(run)
            known = _find_live(track, run)
            if call is None or known is None or known.provider != provider or call.busy:
                continue
            if wait.reason not in WAITS_FOR_ROOM or not call.retry_at_s:
                continue
            found = min(found or (known.created_at_s, run), (known.created_at_s, run))
    if found is not None:
        nudge_start(state, found[1])


def _find_live(track: Track, run: str) -> Run | None:
    if track.work is not None:
        return track.work.history.live.get(run)
    return None
