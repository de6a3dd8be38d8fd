"""The rate limiter before a provider, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.engine.execute.rate_limit import RateLimiter
from fleetctl.providers.contract.terms import Contract
from tests.simulation.loop import SimClock, Timeline, VirtualLoop
from tests.unit.engine.fake_world import CONTRACT


class Play:
    """A gate, and when each call passed it."""

    def __init__(self, contract: Contract) -> None:
        self.timeline = Timeline()
        self.rate_limiter = RateLimiter(contract, SimClock(self.timeline))
        self.passed_at_s: list[float] = []

    async def call(self) -> str:
        self.passed_at_s.append(round(self.timeline.now_s, 6))
        return "done"

    async def long_call(self) -> str:
        self.passed_at_s.append(round(self.timeline.now_s, 6))
        await asyncio.sleep(100)
        return "done"

    def run(self, work: Callable[[], Awaitable[object]]) -> None:
        loop = VirtualLoop(self.timeline, on_step=lambda: None)
        try:
            loop.run_until_complete(_finished(work))
        finally:
            loop.close()


async def _finished(work: Callable[[], Awaitable[object]]) -> None:
    await work()


def limits(**changes: float) -> Contract:
    return replace(CONTRACT, **changes)  # type: ignore[arg-type]


def test_calls_beyond_the_burst_come_at_the_contracts_rate() -> None:
    play = Play(limits(calls_per_s=2.0))

    async def work() -> None:
        await asyncio.gather(*(play.rate_limiter.ask(play.call) for _ in range(6)))

    play.run(work)
    assert play.passed_at_s == [0.0, 0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_slow_provider_gets_one_call_and_then_the_next_when_its_time_has_come() -> None:
    play = Play(limits(calls_per_s=0.1))

    async def work() -> None:
        await asyncio.gather(*(play.rate_limiter.ask(play.call) for _ in range(3)))

    play.run(work)
    assert play.passed_at_s == [0.0, 10.0, 20.0]


def test_no_more_calls_are_under_way_than_the_contract_allows() -> None:
    play = Play(limits(calls_at_once=2))

    async def work() -> None:
        await asyncio.gather(*(play.rate_limiter.ask(play.long_call) for _ in range(5)))

    play.run(work)
    assert play.passed_at_s == [0.0, 0.0, 100.0, 100.0, 200.0]


def test_a_call_that_takes_too_long_is_given_up() -> None:
    play = Play(limits(call_deadline_s=30.0))

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await play.rate_limiter.ask(play.long_call)

    play.run(work)
    assert play.timeline.now_s == pytest.approx(30.0)


def test_waiting_before_the_rate_limiter_does_not_count_against_the_deadline() -> None:
    play = Play(limits(calls_per_s=0.01, call_deadline_s=30.0))

    async def work() -> None:
        results = await asyncio.gather(*(play.rate_limiter.ask(play.call) for _ in range(3)))
        assert results == ["done"] * 3

    play.run(work)


def test_after_a_rate_limit_nobody_calls_before_its_time() -> None:
    play = Play(limits())

    async def refuses() -> str:
        raise Unavailable("429", retry_after_s=40.0, reason="RateLimited")

    async def work() -> None:
        with pytest.raises(Unavailable):
            await play.rate_limiter.ask(refuses)
        await asyncio.gather(play.rate_limiter.ask(play.call), play.rate_limiter.start(play.call))

    play.run(work)
    assert play.passed_at_s == [40.0, 40.0]


def test_another_unavailability_holds_up_nobody_else() -> None:
    play = Play(limits())

    async def refuses() -> str:
        raise Unavailable("no A100", retry_after_s=40.0, reason="NoCapacity")

    async def work() -> None:
        with pytest.raises(Unavailable):
            await play.rate_limiter.ask(refuses)
        await play.rate_limiter.ask(play.call)

    play.run(work)
    assert play.passed_at_s == [0.0]


def test_long_starts_leave_places_for_looks_and_stops() -> None:
    play = Play(limits(calls_at_once=4))

    async def work() -> None:
        starts = [asyncio.ensure_future(play.rate_limiter.start(play.long_call)) for _ in range(9)]
        await asyncio.sleep(1)
        await play.rate_limiter.ask(play.call)
        await asyncio.gather(*starts)

    play.run(work)
    assert play.passed_at_s[:4] == [0.0, 0.0, 0.0, 1.0]


def test_a_cancelled_wait_gives_its_place_back() -> None:
    play = Play(limits(calls_at_once=1))

    async def work() -> None:
        first = asyncio.ensure_future(play.rate_limiter.ask(play.long_call))
        second = asyncio.ensure_future(play.rate_limiter.ask(play.call))
        await asyncio.sleep(1)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await play.rate_limiter.ask(play.call)

    play.run(work)
    assert play.passed_at_s == [0.0, 1.0]


def test_creates_stay_within_their_number_in_any_minute() -> None:
    play = Play(CONTRACT)
    play.rate_limiter.creates_per_minute = 2

    async def work() -> None:
        for _ in range(4):
            await play.rate_limiter.start(play.call, creates=True)
            await asyncio.sleep(10)

    play.run(work)
    assert play.passed_at_s == [0, 10, 60, 70]


def test_creates_before_a_restart_count_and_each_is_noted_before_its_call() -> None:
    play = Play(CONTRACT)
    play.rate_limiter.creates_per_minute = 2
    begun_s = SimClock(play.timeline).now_s()
    noted: list[tuple[float, int]] = []  # after the beginning, and the calls before it

    def note(at_s: float) -> None:
        noted.append((at_s - begun_s, len(play.passed_at_s)))

    async def work() -> None:
        await asyncio.sleep(50)
        # One of them after the clock was set back.
        play.rate_limiter.remember([begun_s + 5, begun_s + 400], note)
        for _ in range(3):
            await play.rate_limiter.start(play.call, creates=True)

    play.run(work)
    assert play.passed_at_s == [65, 110, 125]
    assert noted == [(65, 0), (110, 1), (125, 2)]


def test_what_makes_nothing_is_not_counted_as_a_create() -> None:
    play = Play(CONTRACT)
    play.rate_limiter.creates_per_minute = 1

    async def work() -> None:
        await play.rate_limiter.start(play.call, creates=True)
        await play.rate_limiter.start(play.call)
        await play.rate_limiter.ask(play.call)

    play.run(work)
    assert play.passed_at_s == [0, 0, 0]
