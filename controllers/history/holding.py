"""What the open sandboxes of one object hold at their providers, kept as they come and go, so that
nobody needs to count them all again. Part of a History; read by the engine for its limits. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class Place(NamedTuple):
    """What sandboxes are counted by. stopping: it will be gone without our doing more."""

    provider: str
    usd_per_s: float | None
    stopping: bool


class Holding:
    """How many sandboxes there are of each sort. Sorts are few: prices are those of templates."""

    __slots__ = ("_places", "counts")

    def __init__(self) -> None:
        self.counts: Counter[Place] = Counter()  # without zeros
        self._places: dict[str, Place] = {}  # sandbox -> how it was counted

    def set(self, sandbox: str, place: Place | None) -> None:
        """The sandbox is now of this sort; None: it is gone."""
        before = self._places.get(sandbox)
        if before == place:
            return
        if before is not None:
            del self._places[sandbox]
            self.counts[before] -= 1
            if not self.counts[before]:
                del self.counts[before]
        if place is not None:
            self._places[sandbox] = place
            self.counts[place] += 1
