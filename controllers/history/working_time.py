"""Measures how long there was work: the time during which at least one attempt ran, in seconds.

Fed by attempts.py as attempts end and read by status.py. Waiting, refusal, suspension and the idle
night between two applies are not work, so no end minus a beginning would show it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from fleetctl.controllers.model import Run

# Between one task and the next a sandbox is made; that much belongs to the work. It also bounds
# how many spans there can be: one every two seconds, and that only where work is as short as that.
GAP_S = 1.0


class WorkingTime:
    """Disjoint spans of seconds since the epoch. `add` costs O(log spans) plus one list shift."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def add(self, run: Run) -> None:
        """Adds an ended attempt; one that never began, or took an equal result, is not work."""
        if run.started_at_s is not None and run.ended_at_s is not None:
            self._join(run.started_at_s, max(run.started_at_s, run.ended_at_s))

    def figures(self, live: Iterable[Run]) -> tuple[float, float | None]:
        """Returns (seconds before the present stretch of work, when that began or None while no
        attempt runs).

        Both stay the same while the same attempts run: a status is not written for a clock.
        """
        begun = min((it.started_at_s for it in live if it.started_at_s is not None), default=None)
        if begun is None:
            return sum(self._ends) - sum(self._starts), None
        at = bisect_left(self._ends, begun - GAP_S)
        since_s = min(begun, self._starts[at]) if at < len(self._starts) else begun
        return sum(self._ends[:at]) - sum(self._starts[:at]), since_s

    def _join(self, start_s: float, end_s: float) -> None:
        first = bisect_left(self._ends, start_s - GAP_S)
        last = bisect_right(self._starts, end_s + GAP_S)
        if first < last:
            start_s = min(start_s, self._starts[first])
            end_s = max(end_s, self._ends[last - 1])
        self._starts[first:last] = [start_s]
        self._ends[first:last] = [end_s]
