"""Virtual time, and an asyncio event loop that runs on it.

The `Timeline` belongs to the world and outlives every crash; a `VirtualLoop` belongs to one
incarnation of the controller. Nothing here sleeps for real: when no callback is ready, time jumps
to the next timer of either.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

# Wall time starts far from loop time, so that code which mixes the two is off by years and shows
# itself.
EPOCH_S = 1_800_000_000.0

# A correct engine needs some hundred callbacks at one instant; more means that it spins (C14, a
# hot loop).
STEPS_PER_INSTANT_MAX = 20_000

# Awaits inside `finally` blocks of one coroutine; a guess that is never reached.
CLOSES_MAX = 10


class HotLoop(AssertionError):
    """The engine runs callback after callback and lets no time pass."""


class Timeline:
    """The world's own time and what will happen in it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.epoch_s = EPOCH_S  # wall time at its begin
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when_s: float, happen: Callable[[], None]) -> None:
        """Call `happen` at `when_s`, or now if that is past; equal times keep their order."""
        heapq.heappush(self._events, (max(when_s, self.now_s), next(self._order), happen))

    def after(self, delay_s: float, happen: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, happen)

    def next_at_s(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def advance(self, to_s: float) -> None:
        """Let time pass up to `to_s`; all that happens on the way happens in its order."""
        while self._events and self._events[0][0] <= to_s:
            when_s, _, happen = heapq.heappop(self._events)
            self.now_s = max(self.now_s, when_s)
            happen()
        self.now_s = max(self.now_s, to_s)


class SimClock:
    """The `fleetctl.common.clock.Clock` of a simulated controller."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now_s(self) -> float:
        return self._timeline.epoch_s + self._timeline.now_s


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time is a Timeline.

    on_step: called before each callback; may raise to end the incarnation right there. rng: when
    given, callbacks that are ready together run in a seeded order instead of first come, first
    served.
    """

    def __init__(
        self, timeline: Timeline, *, on_step: Callable[[], None], rng: random.Random | None = None
    ) -> None:
        super().__init__()
        self._timeline = timeline
        self._on_step = on_step
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]
        self._clock_resolution: float
        self._rng = rng
        self._turn: list[asyncio.Handle] = []
        self._steps_now = 0
        self._instant_s = -1.0

    def time(self) -> float:
        return self._timeline.now_s

    def _run_once(self) -> None:
        self._take_due_timers()
        if not self._ready:
            self._jump()
            self._take_due_timers()
        # Kept in an attribute, so that a crash in the middle leaves their tasks for `bury`.
        ready = self._turn = list(self._ready)
        self._ready.clear()
        if self._rng is not None:
            self._rng.shuffle(ready)
        for handle in ready:
            if not handle.cancelled():
                self._count_step()
                self._on_step()
                handle._run()

    def _jump(self) -> None:
        timer_at_s = self._scheduled[0].when() if self._scheduled else float("inf")
        next_at_s = min(timer_at_s, self._timeline.next_at_s())
        assert next_at_s < float("inf"), (
            "nothing will ever happen again, and nobody ends the simulation"
        )
        self._timeline.advance(next_at_s)

    def _take_due_timers(self) -> None:
        while self._scheduled:
            timer = self._scheduled[0]
            if timer.cancelled():
                timer._scheduled = False  # type: ignore[attr-defined]
                heapq.heappop(self._scheduled)
            elif timer.when() <= self._timeline.now_s + self._clock_resolution:
                timer._scheduled = False  # type: ignore[attr-defined]
                self._ready.append(heapq.heappop(self._scheduled))
            else:
                return

    def _count_step(self) -> None:
        if self._timeline.now_s > self._instant_s:
            self._instant_s, self._steps_now = self._timeline.now_s, 0
        self._steps_now += 1
        if self._steps_now > STEPS_PER_INSTANT_MAX:
            raise HotLoop(
                f"{self._steps_now} callbacks ran at {self._instant_s:.3f} s and no time passed"
            )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def _write_to_self(self) -> None:
        """There is no other thread to wake us."""

    def _process_events(self, event_list: Any) -> None:
        """There are no file descriptors."""

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        raise AssertionError(
            "a simulated engine may not use threads: they have a time of their own"
        )

    def bury(self) -> None:
        """Drop all tasks of a dead incarnation. Their cleanup runs against a world that refuses
        them.
        """
        self.set_exception_handler(lambda _loop, _context: None)
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self._ready.clear()
        self._scheduled.clear()
        self.close()


def _close(coroutine: Any) -> None:
    """Unwind a suspended coroutine. One that awaits in its cleanup must be told more than once."""
    for _ in range(CLOSES_MAX):
        # What a dead process would have done in its `finally` blocks is of no interest here.
        with contextlib.suppress(BaseException):
            coroutine.close()
            return
