"""A queue of keys with due times. An event says which key to look at, never what changed; repeats
collapse.
"""

from __future__ import annotations

import heapq


class Queue:
    """Each key is in it once at most, under its earliest due time. FIFO among those due."""

    __slots__ = ("_due_at_s", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._due_at_s: dict[str, float] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._due_at_s)

    def add(self, key: str, due_at_s: float = 0.0) -> None:
        """Look at `key` at due_at_s at the latest; 0.0 = at once."""
        known = self._due_at_s.get(key)
        if known is not None and known <= due_at_s:
            return
        self._due_at_s[key] = due_at_s
        self._order += 1
        heapq.heappush(self._heap, (due_at_s, self._order, key))

    def take(self, now_s: float, *, keys_max: int) -> list[str]:
        """The due keys, the longest due first; they are no longer in the queue."""
        taken: list[str] = []
        while self._heap and self._heap[0][0] <= now_s and len(taken) < keys_max:
            due_at_s, _, key = heapq.heappop(self._heap)
            # An entry whose time was brought forward is a leftover.
            if self._due_at_s.get(key) == due_at_s:
                del self._due_at_s[key]
                taken.append(key)
        return taken

    def discard(self, key: str) -> None:
        self._due_at_s.pop(key, None)

    def next_due_at_s(self) -> float | None:
        while self._heap and self._due_at_s.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
