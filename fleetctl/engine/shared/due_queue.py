"""A queue of keys with due times. An event names the key to look at, never the change; repeats
collapse.
"""

from __future__ import annotations

import heapq
from itertools import islice


class DueQueue:
    """Each key is in it once at most, under its earliest due time. FIFO among those due, so that
    keys which are always busy cannot keep others from their turn.
    """

    __slots__ = ("_due_at_s", "_heap", "_ready")

    def __init__(self) -> None:
        self._ready: dict[str, None] = {}  # due now, in the order in which they became so
        self._due_at_s: dict[str, float] = {}  # due later
        self._heap: list[tuple[float, str]] = []  # of _due_at_s, and leftovers

    def __len__(self) -> int:
        return len(self._ready) + len(self._due_at_s)

    def __contains__(self, key: str) -> bool:
        return key in self._ready or key in self._due_at_s

    def add(self, key: str, due_at_s: float = 0.0) -> None:
        """Schedules a look at `key` at due_at_s at the latest; 0.0 = at once."""
        if key in self._ready:
            return
        if due_at_s <= 0.0:
            self._due_at_s.pop(key, None)
            self._ready[key] = None
            return
        known = self._due_at_s.get(key)
        if known is None or due_at_s < known:
            self._due_at_s[key] = due_at_s
            heapq.heappush(self._heap, (due_at_s, key))

    def take(self, now_s: float, *, keys_max: int) -> list[str]:
        """Returns the due keys, the longest due first; they are no longer in the queue."""
        while (due_at_s := self._next()) is not None and due_at_s <= now_s:
            _, key = heapq.heappop(self._heap)
            del self._due_at_s[key]
            self._ready[key] = None
        taken = list(islice(self._ready, keys_max))
        for key in taken:
            del self._ready[key]
        return taken

    def discard(self, key: str) -> None:
        self._ready.pop(key, None)
        self._due_at_s.pop(key, None)

    def next_due_at_s(self) -> float | None:
        """Returns 0.0 when a key is due already; None when the queue is empty."""
        if self._ready:
            return 0.0
        return self._next()

    def _next(self) -> float | None:
        # An entry whose time was brought forward, or whose key is gone, is a leftover.
        while self._heap and self._due_at_s.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            return self._heap[0][0]
        return None
