"""How many more sandboxes each provider may hold, and whether anything may start at all.

Parallelism limits one object; without this, a thousand objects would start a thousand sandboxes
on one machine. Counted anew in every turn from what is live, so it cannot drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.wish import Room

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine
    from fleetctl.engine.track import Track

DISK_FULL_PAUSE_S = 30.0
_DISK_FULL = "the disk that holds the store is full; nothing is started until there is room"


class Admission:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._crowded: dict[str, None] = {}  # uids that wait for room, the longest waiting first
        self._free: dict[str, int] = {}
        self._paused_until_s = 0.0

    def pause(self, now_s: float) -> None:
        """The disk is full: what is live ends and is recorded, nothing new begins."""
        self._paused_until_s = now_s + DISK_FULL_PAUSE_S

    def count(self, now_s: float) -> list[str]:
        """Begin a turn; the uids that waited for room and may find some now."""
        held: dict[str, int] = {}
        for track in self._engine.tracks.values():
            if track.history is not None:
                for box in track.history.sandboxes.values():
                    held[box.provider] = held.get(box.provider, 0) + 1
        for name, provider in self._engine.providers.items():
            limit = provider.contract.sandboxes_at_once
            if limit is not None:
                self._free[name] = max(0, limit - held.get(name, 0))
        if now_s < self._paused_until_s or not self._crowded:
            return []
        room = sum(self._free.values())
        woken = list(self._crowded)[:room]
        for uid in woken:
            del self._crowded[uid]
        return woken

    def room(self, now_s: float) -> Room:
        """What the next pass may start."""
        if now_s < self._paused_until_s:
            return Room(paused=_DISK_FULL, until_s=self._paused_until_s)
        return Room(free=self._free)

    def started(self, track: Track, provider: str, count: int) -> None:
        """A pass started `count` new sandboxes."""
        if provider in self._free:
            self._free[provider] -= count
        self._crowded.pop(track.resource.uid, None)

    def crowded(self, track: Track) -> None:
        """A pass found no room; its object is looked at again when there is some."""
        self._crowded.setdefault(track.resource.uid)
