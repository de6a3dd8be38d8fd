"""The emulator's clock: real time, scaled, and advanced at will; and what is due on it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import lru_cache


class Clock:
    """Seconds since the epoch as the emulated platform sees them."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._real_at_s = time.monotonic()
        self._at_s = time.time()
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._alarm: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        return self._at_s + (time.monotonic() - self._real_at_s) * self._scale

    def iso(self, at_s: float | None = None) -> str:
        return _iso(self.now_s() if at_s is None else at_s)

    def call_at(self, at_s: float, call: Callable[[], None]) -> None:
        """Nothing is cancelled: what no longer applies when it is due has to see that itself."""
        heapq.heappush(self._due, (at_s, next(self._order), call))
        self._set_alarm()

    async def sleep(self, for_s: float) -> None:
        if for_s <= 0:
            return
        woken = asyncio.Event()
        self.call_at(self.now_s() + for_s, woken.set)
        await woken.wait()

    def advance(self, by_s: float) -> None:
        """Jump ahead; everything due on the way happens, in its order, before this returns."""
        self._rebase(self.now_s() + by_s, self._scale)
        self._run_due()

    def set_scale(self, scale: float) -> None:
        self._rebase(self.now_s(), scale)
        self._set_alarm()

    def _rebase(self, at_s: float, scale: float) -> None:
        self._real_at_s, self._at_s, self._scale = time.monotonic(), at_s, scale

    def _run_due(self) -> None:
        while self._due and self._due[0][0] <= self.now_s():
            heapq.heappop(self._due)[2]()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._due and self._scale > 0:
            in_s = max(0.0, self._due[0][0] - self.now_s()) / self._scale
            # A loop's timers may fire a hair early; one that did would find nothing due.
            self._alarm = asyncio.get_running_loop().call_later(in_s + 0.0005, self._run_due)


def _iso(at_s: float) -> str:
    """By hand: several moments of a sandbox are told with every answer about it."""
    seconds, millis = divmod(int(at_s * 1000), 1000)
    return f"{_second(seconds)}.{millis:03}Z"


@lru_cache(maxsize=4096)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
