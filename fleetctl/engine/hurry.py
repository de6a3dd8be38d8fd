"""Starts that wait are asked for at once, when what they wait for may be there.

Called by whoever hears of it: an apply, an answer, the end of a sandbox, a push of a provider.
"""

from __future__ import annotations

from fleetctl.controllers.model import Run
from fleetctl.engine.shared.state import State
from fleetctl.tracking.track import Track

# What a start waits for until a sandbox of the same account ends.
WAITS_FOR_ROOM = frozenset({"Quota", "NoCapacity"})


def hurry(state: State, reason: str) -> None:
    """What made starts wait for this reason may have changed: ask again at once."""
    for uid, track in state.tracks.items():
        _hurry_talk(state, track)
        for run in [run for run, wait in track.waits.items() if wait.reason == reason]:
            if run in track.calls:
                track.calls[run].retry_at_s = 0.0
                state.poke(uid)


def hurry_object(state: State, uid: str) -> None:
    """Somebody applied it again: whatever its starts wait for may be there now."""
    track = state.tracks.get(uid)
    if track is not None:
        track.forget_places()
        _hurry_talk(state, track)
    for run in list(track.waits) if track is not None else ():
        hurry_start(state, run)


def _hurry_talk(state: State, track: Track) -> None:
    """The key of a sweep at W&B may be another now."""
    if track.work is not None and track.work.controller.handed is not None:
        state.hurried.add(track.resource.uid)
        state.poke(track.resource.uid)


def hurry_start(state: State, run: str) -> None:
    """What this one start waits for may be there now."""
    uid = state.owner_of.get(run)
    track = state.tracks.get(uid) if uid is not None else None
    if track is not None and run in track.waits and run in track.calls:
        track.calls[run].retry_at_s = 0.0
        state.poke(track.resource.uid)


def freed(state: State, provider: str) -> None:
    """A sandbox of ours ended there: one start that waits for such room is asked for at once, the
    one that waits for the longest.
    """
    found: tuple[float, str] | None = None
    for track in state.tracks.values():
        for run, wait in track.waits.items():
            call, known = track.calls.get(run), _live(track, run)
            if call is None or known is None or known.provider != provider or call.busy:
                continue
            if wait.reason not in WAITS_FOR_ROOM or not call.retry_at_s:
                continue
            found = min(found or (known.created_at_s, run), (known.created_at_s, run))
    if found is not None:
        hurry_start(state, found[1])


def _live(track: Track, run: str) -> Run | None:
    return track.work.history.live.get(run) if track.work is not None else None
