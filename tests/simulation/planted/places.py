"""Bugs in placing: limits over all objects, and starts that move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.schedule.capacity import PassSlots
from fleetctl.controllers.status_keys import SPILLED_OVER
from fleetctl.engine.capacity import admission
from fleetctl.engine.capacity.admission import ProviderAdmission
from fleetctl.engine.capacity.price_book import PriceBook
from fleetctl.engine.decide import intents
from fleetctl.engine.execute.rate_limit import RateLimiter
from fleetctl.engine.observe.records import Records
from fleetctl.stores.sqlite.runs import SqliteCreates
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def moved_before_it_is_confirmed_gone() -> Context:
    """A start of unknown outcome moves as if it had been answered."""
    return swapped(intents, "_has_no_sandbox", lambda run, call: run.sandbox == run.name)


def spill_costs_an_attempt() -> Context:
    """A start that moves counts as a failure of the application."""

    def make(end: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Records, work: Any, run: Run, result: Any) -> None:
            moves = run.reason == SPILLED_OVER
            end(self, work, replace(run, state=RunState.FAILED) if moves else run, result)

        return patched

    return around(Records, "end", make)


def provider_limit_counts_running_alone() -> Context:
    """A sandbox that is still being made does not count against maxConcurrent."""

    def make(count: Callable[..., Any]) -> Callable[..., Any]:
        def patched(tracks: Any) -> Any:
            found = count(tracks)
            for track in tracks:
                for run in track.work.history.live.values() if track.work else ():
                    if run.state is RunState.STARTING and run.sandbox == run.name:
                        found[run.provider].sandboxes -= 1
            return found

        return patched

    return around(admission, "_count_holdings", make)


def lowered_limit_ignored_by_starts() -> Context:
    """A start that was desired under a greater limit is made under a smaller one."""
    return swapped(PassSlots, "over", lambda self: {})


def breaker_counted_once_a_turn() -> Context:
    """All that starts in one tick sees the spend from before it."""

    both = ExitStack()
    both.enter_context(swapped(PassSlots, "take", lambda self, where: None))
    both.enter_context(
        swapped(ProviderAdmission, "started", lambda self, track, runs, now_s: None),
    )
    return both


def creates_not_counted_at_the_rate_limiter() -> Context:
    """Only new specs count against createsPerMinute, and no start that is asked for again."""
    return swapped(RateLimiter, "_create_at_s", lambda self, now_s: now_s)


def creates_forgotten_at_restart() -> Context:
    """A restarted controller begins a new minute."""
    return swapped(SqliteCreates, "times", lambda self, provider: [])


def limits_forgotten_at_restart() -> Context:
    """A restarted controller knows no Provider object until one is applied."""

    def make(refresh: Callable[..., bool]) -> Callable[..., bool]:
        def patched(self: PriceBook) -> bool:
            if self._state.clock.now_s() == self._state.started_at_s:
                return False
            return refresh(self)

        return patched

    return around(PriceBook, "refresh", make)


PLANTS: tuple[Plant, ...] = (
    moved_before_it_is_confirmed_gone,
    spill_costs_an_attempt,
    provider_limit_counts_running_alone,
    lowered_limit_ignored_by_starts,
    breaker_counted_once_a_turn,
    creates_not_counted_at_the_rate_limiter,
    creates_forgotten_at_restart,
    limits_forgotten_at_restart,
)
