"""Retries waiting starts at once when their obstacle may be gone.

Called by the code that receives the event: an apply, a reply, the end of a sandbox, a push of a
provider.
"""

from __future__ import annotations

from fleetctl.controllers.model import Run
from fleetctl.engine.shared.engine_state import EngineState
from fleetctl.tracking.track import Track

# Reasons for a start to wait until a sandbox of the same account ends.
WAITS_FOR_ROOM = frozenset({"Quota", "NoCapacity"})


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
    """Retries one start at once after a sandbox of ours ended there: the longest waiting start that
    needs such capacity.
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
