"""The Pareto front of units that have several values each: those that none is better than in one
value without being worse in another. Pure.

Kept as units end. With two values each costs O(log n) and what it drives out; with more it is
compared with those of the front that are better in the first one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

Values = tuple[float, ...]  # of one unit, as many for each; lower is better


class Front:
    """Equal units are all on it."""

    def __init__(self) -> None:
        self._points: list[tuple[Values, int]] = []  # ascending: the best first value first

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[tuple[int, Values]]:
        """(index, values), the best in the first value first."""
        return ((index, values) for values, index in self._points)

    def add(self, index: int, values: Values) -> None:
        """Of a unit that was not added before."""
        points, at = self._points, bisect_left(self._points, (values, index))
        # Whoever is better than this one sorts before it; of two values the nearest tells.
        first = at - 1 if len(values) == 2 else 0
        if any(_beats(points[other][0], values) for other in range(max(first, 0), at)):
            return
        end = at
        if len(values) == 2:
            while end < len(points) and _beats(values, points[end][0]):
                end += 1
            points[at:end] = [(values, index)]
        else:
            kept = [it for it in points[at:] if not _beats(values, it[0])]
            points[at:] = [(values, index), *kept]


def _beats(one: Values, other: Values) -> bool:
    """As good in everything, and better in something."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
