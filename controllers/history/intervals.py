"""A set of task indexes as intervals, so that 100,000 finished tasks take one pair of numbers.

Used by the history of a resource and by its status (`completedIndexes: "0-411,430"`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """Non-negative integers. add, discard and `in` cost O(log intervals) plus one list shift."""

    __slots__ = ("_count", "_ends", "_starts")

    def __init__(self, items: Iterable[int] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive
        self._count = 0
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: int) -> bool:
        at = bisect_right(self._starts, item) - 1
        return at >= 0 and item <= self._ends[at]

    def __iter__(self) -> Iterator[int]:
        for start, end in zip(self._starts, self._ends, strict=True):
            yield from range(start, end + 1)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, intervals_max: int | None = None) -> str:
        """Formats the set as `0-411,430`; cut after intervals_max intervals with `,...`."""
        shown = len(self._starts) if intervals_max is None else intervals_max
        pairs = zip(self._starts[:shown], self._ends[:shown], strict=True)
        text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
        if shown >= len(self._starts):
            return text
        return text + ",..."

    def add(self, item: int) -> bool:
        """Adds a number. Returns True when it was new."""
        at = bisect_right(self._starts, item) - 1
        if at >= 0 and item <= self._ends[at]:
            return False
        self._count += 1
        joins_left = at >= 0 and self._ends[at] == item - 1
        joins_right = at + 1 < len(self._starts) and self._starts[at + 1] == item + 1
        if joins_left and joins_right:
            self._ends[at] = self._ends.pop(at + 1)
            del self._starts[at + 1]
        elif joins_left:
            self._ends[at] = item
        elif joins_right:
            self._starts[at + 1] = item
        else:
            self._starts.insert(at + 1, item)
            self._ends.insert(at + 1, item)
        return True

    def discard(self, item: int) -> bool:
        """Removes a number. Returns True when it was in the set."""
        at = bisect_right(self._starts, item) - 1
        if at < 0 or item > self._ends[at]:
            return False
        self._count -= 1
        start = self._starts[at]
        end = self._ends[at]
        if start == end:
            del self._starts[at], self._ends[at]
        elif item == start:
            self._starts[at] = item + 1
        elif item == end:
            self._ends[at] = item - 1
        else:
            self._ends[at] = item - 1
            self._starts.insert(at + 1, item + 1)
            self._ends.insert(at + 1, end)
        return True

    def count(self, start: int, end: int) -> int:
        """Counts the members in [start, end); costs O(log intervals + intervals in it)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        found = 0
        for at in range(first, len(self._starts)):
            if self._starts[at] >= end:
                break
            found += max(0, min(self._ends[at] + 1, end) - max(self._starts[at], start))
        return found

    def gaps(self, start: int, end: int) -> Iterator[int]:
        """Yields the numbers that are not in the set, in [start, end), ascending, lazily: the next
        is found in O(log intervals).

        The set must not change while the iterator is used.
        """
        item = start
        while item < end:
            at = bisect_right(self._starts, item) - 1
            if at >= 0 and item <= self._ends[at]:
                item = self._ends[at] + 1
                continue
            stop = self._starts[at + 1] if at + 1 < len(self._starts) else end
            yield from range(item, min(stop, end))
            item = stop
