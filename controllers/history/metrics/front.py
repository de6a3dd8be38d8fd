"""Keeps the Pareto front of units that have several values each: a unit is on it if no other is
better in one value without being worse in another. Pure.

Updated as units end. With two values each costs O(log n) and the units it displaces; with more it
is compared with the members of the front that are better in the first value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

Values = tuple[float, ...]  # the values of a unit, as many for each; lower is better


class ParetoFront:
    """Equal units are all on it."""

    def __init__(self) -> None:
        self._points: list[tuple[Values, int]] = []  # ascending: the best first value first

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[tuple[int, Values]]:
        """Yields (index, values), the best in the first value first."""
        return ((index, values) for values, index in self._points)

    def add(self, index: int, values: Values) -> None:
        """Adds a unit that was not added before."""
        points = self._points
        at = bisect_left(self._points, (values, index))
        # A better unit sorts before this one; with two values the nearest decides.
        first = at - 1 if len(values) == 2 else 0
        if any(_is_better(points[other][0], values) for other in range(max(first, 0), at)):
            return
        end = at
        if len(values) == 2:
            while end < len(points) and _is_better(values, points[end][0]):
                end += 1
            points[at:end] = [(values, index)]
        else:
            kept = [it for it in points[at:] if not _is_better(values, it[0])]
            points[at:] = [(values, index), *kept]


def _is_better(one: Values, other: Values) -> bool:
    """Returns true if one is as good in every value, and better in at least one."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
