"""The only module that reads the time, and the deadlines of commands that wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the epoch, UTC."""
        ...


class SystemClock:
    """Wall time at the start of this process plus monotonic time since.

    A jump of the wall clock inside a process's life neither kills nor prolongs work (I17);
    across restarts, deadlines are wall times in the store.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        return self._offset_s + time.monotonic()


_: type[Clock] = SystemClock


class Deadline:
    """A moment `timeout_s` from now; None is never."""

    def __init__(self, timeout_s: float | None, clock: Clock | None = None) -> None:
        self.timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._at_s = None if timeout_s is None else self._clock.now_s() + timeout_s

    @property
    def passed(self) -> bool:
        return self._at_s is not None and self._clock.now_s() >= self._at_s

    def sleep(self, span_s: float) -> None:
        """Sleeps for that time, but not beyond the deadline."""
        if self._at_s is not None:
            span_s = min(span_s, self._at_s - self._clock.now_s())
        time.sleep(max(0.0, span_s))


class RepeatTimer:
    """A timer of periodic work. The first turn is due `first_s` from now."""

    def __init__(
        self,
        span_s: float,
        *,
        first_s: float,
        clock: Clock | None = None,
    ) -> None:
        self._span_s = span_s
        self._clock = clock or SystemClock()
        self._next_s = self._clock.now_s() + first_s

    def due(self) -> bool:
        """Returns True at most once a span."""
        now_s = self._clock.now_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._span_s
        return True
