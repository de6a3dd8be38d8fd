"""Later calls of the supervisor: a heap with their monotonic times."""

from __future__ import annotations

import heapq
import itertools
import time
from typing import Callable, Optional


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """There is no cancelling: `act` looks whether it still applies."""
        heapq.heappush(self._heap, (time.monotonic() + delay_s, next(self._counter), act))

    def wait_s(self) -> Optional[float]:
        """Returns the seconds until the next call is due; None without calls."""
        if self._heap:
            return max(0.0, self._heap[0][0] - time.monotonic())
        return None

    def run_due(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
