"""Keeps the units of a resource that wait for their next attempt, by when it is due. Updated by
history.py; read by the code that chooses starts and by the status.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

SHOWN_MAX = 3  # units that a message may speak of
_AFTER_ALL_INDEXES = 1 << 62


class BackoffQueue:
    """Units with their due times, the longest due first. All but `due` costs O(log waiting)."""

    __slots__ = ("_units",)

    def __init__(self) -> None:
        self._units: list[tuple[float, int]] = []  # (due_at_s, index), sorted

    def add(self, index: int, due_at_s: float) -> None:
        insort(self._units, (due_at_s, index))

    def discard(self, index: int, due_at_s: float) -> None:
        at = bisect_left(self._units, (due_at_s, index))
        if at < len(self._units) and self._units[at] == (due_at_s, index):
            del self._units[at]

    def due(self, now_s: float) -> Iterator[int]:
        """Units whose next attempt may start now, the longest due first."""
        for due_s, index in self._units:
            if due_s > now_s:
                return
            yield index

    def next_due_at_s(self, now_s: float) -> float | None:
        """Returns when the next unit comes due after now_s; None when no unit waits."""
        at = bisect_left(self._units, (now_s, _AFTER_ALL_INDEXES))
        if at < len(self._units):
            return self._units[at][0]
        return None

    def backing_off(self, now_s: float) -> tuple[tuple[float, int], ...]:
        """Returns the first few units that wait for their next attempt, as (due_at_s, index)."""
        at = bisect_left(self._units, (now_s, _AFTER_ALL_INDEXES))
        return tuple(self._units[at : at + SHOWN_MAX])
