"""Bugs in carrying out: calls without a record, without a confirmation, without a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from fleetctl.controllers.model import Gone, Observation, Run
from fleetctl.engine import engine as loop
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.engine import Engine
from fleetctl.engine.execute import orphan_sweep
from fleetctl.engine.execute.executor import PlanExecutor
from fleetctl.engine.execute.rate_limit import RateLimiter
from fleetctl.engine.observe.intake import ReplyHandler
from fleetctl.engine.observe.watcher import RunWatcher
from fleetctl.engine.shared.messages import Observed, StartReplied
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.contract.terms import Contract
from fleetctl.stores.sqlite.runs import SqliteRuns
from tests.simulation.planted.plant import Plant, around, swapped
from tests.simulation.provider import SimProvider

Context = AbstractContextManager[object]


def no_intent_before_effect() -> Context:
    """The row of a start is written with its first news, after the provider was called."""
    held: dict[str, Run] = {}
    begin = SqliteRuns.begin

    def later(self: SqliteRuns, runs: Sequence[Run]) -> None:
        held.update((run.name, run) for run in runs)

    def make(advance: Callable[..., bool]) -> Callable[..., bool]:
        def now(self: SqliteRuns, run: Run, **options: Any) -> bool:
            if run.name in held:
                begin(self, [held.pop(run.name)])
            return advance(self, run, **options)

        return now

    both = ExitStack()
    both.enter_context(swapped(SqliteRuns, "begin", later))
    both.enter_context(around(SqliteRuns, "advance", make))
    return both


def stop_believed_when_asked() -> Context:
    """A stop that the provider took counts as confirmed."""

    def make(stop_replied: Callable[..., None]) -> Callable[..., None]:
        def patched(self: ReplyHandler, work: Any, fact: Any, call: Any, now_s: float) -> None:
            stop_replied(self, work, fact, call, now_s)
            run = work.history.live.get(fact.run)
            if not fact.message and run is not None:
                call.appeared_at_s = 0.0
                news = Observed(run.provider, now_s + 1e6, Gone(run.name, now_s))
                self._state.inbox.tell(news)

        return patched

    return around(ReplyHandler, "_stop_replied", make)


def stop_asked_once() -> Context:
    """A stop is asked for once; one that was ignored or failed is waited for without end."""

    def make(stop_replied: Callable[..., None]) -> Callable[..., None]:
        def patched(self: ReplyHandler, work: Any, fact: Any, call: Any, now_s: float) -> None:
            stop_replied(self, work, fact, call, now_s)
            call.retry_at_s = float("inf")

        return patched

    return around(ReplyHandler, "_stop_replied", make)


def start_asked_once() -> Context:
    """A start whose answer was lost is never asked for again."""

    def make(drive: Callable[..., None]) -> Callable[..., None]:
        def patched(self: PlanExecutor, work: Any, run: Run, now_s: float) -> None:
            call = work.track.calls.get(run.name)
            if call is None or call.tries == 0:
                drive(self, work, run, now_s)

        return patched

    return around(PlanExecutor, "_drive_start", make)


def begins_before_its_handle_is_durable() -> Context:
    """Both phases of a start in one call: a crash between them and the commit begins it again."""

    def make(start_call: Callable[..., Any]) -> Callable[..., Any]:
        async def patched(self: PlanExecutor, provider: str, order: RunRequest) -> str:
            handle: str = await start_call(self, provider, order)
            if self._state.providers[provider].contract.two_phase and not order.handle:
                await start_call(self, provider, replace(order, handle=handle))
            return handle

        return patched

    return around(PlanExecutor, "_start_call", make)


def first_phase_taken_for_the_start() -> Context:
    """A sandbox that waits to begin counts as a run that has begun."""

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def patched(self: StartReplied, run: str, handle: str, begun: bool = True) -> None:
            init(self, run, handle, True)

        return patched

    return around(StartReplied, "__init__", make)


def idle_sandbox_forgotten() -> Context:
    """Nobody closes a sandbox that has no task left."""
    return swapped(PlanExecutor, "_drive_close", lambda self, work, action, now_s: None)


def scratch_forgotten() -> Context:
    """A deleted object is dropped without freeing what its runs left."""

    def make(desired: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: Passes, work: Any, *rest: Any) -> Any:
            work.track.asset.swept = True
            return desired(self, work, *rest)

        return patched

    return around(Passes, "_desired", make)


def no_call_deadline() -> Context:
    """A call that never returns is waited for without end."""

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def patched(self: RateLimiter, contract: Contract, clock: Any) -> None:
            init(self, replace(contract, call_deadline_s=1e6), clock)

        return patched

    return around(RateLimiter, "__init__", make)


def retry_after_ignored() -> Context:
    """A provider that asks for patience gets none."""
    return swapped(RateLimiter, "hold_until", lambda self, at_s: None)


def bucket_ignored() -> Context:
    """Calls are made as fast as they come."""

    def delay_s(self: RateLimiter, *, creates: bool) -> float:
        return max(0.0, self._held_until_s - self._clock.now_s())

    return swapped(RateLimiter, "_delay_s", delay_s)


def sweep_knows_nobody() -> Context:
    """The sweep takes every sandbox for an orphan."""
    return swapped(orphan_sweep, "_is_known", lambda engine, box: False)


def sweep_ends_what_is_unreadable() -> Context:
    """Of an object whose row cannot be read, every sandbox is taken for an orphan."""
    return swapped(orphan_sweep, "_is_in_rows", lambda state, uid, sandbox: False)


def sweep_never() -> Context:
    """Sandboxes without a record stay."""

    async def never(engine: Engine) -> None:
        await asyncio.get_running_loop().create_future()

    return swapped(loop, "sweep_forever", never)


def push_is_the_only_news() -> Context:
    """Runs are looked at when the provider tells of them, and never else."""
    return swapped(RunWatcher, "_list_polled", lambda self, provider: set())


def push_means_gone() -> Context:
    """A push is taken for the news that the run is gone."""

    def notify(self: Engine, run: str) -> None:
        uid = self.state.owner_of.get(run)
        track = self.state.tracks.get(uid) if uid is not None else None
        if track is not None and track.work is not None and run in track.work.history.live:
            now_s = self.state.clock.now_s()
            provider = track.work.history.live[run].provider
            self.state.inbox.tell(Observed(provider, now_s + 1e6, Gone(run, now_s)))

    return swapped(Engine, "notify", notify)


def missing_means_gone() -> Context:
    """A run that an answer leaves out is taken for gone."""

    def make(observe: Callable[..., Any]) -> Callable[..., Any]:
        async def patched(self: SimProvider, runs: Sequence[RunRef]) -> Sequence[Observation]:
            seen = list(await observe(self, runs))
            known = {it.run for it in seen}
            now_s = self.clock.now_s()
            return seen + [Gone(ref.run, now_s) for ref in runs if ref.run not in known]

        return patched

    return around(SimProvider, "observe", make)


def unlisted_means_gone() -> Context:
    """A run whose sandbox a list does not show is taken for gone."""

    def make(observe: Callable[..., Any]) -> Callable[..., Any]:
        async def patched(self: SimProvider, runs: Sequence[RunRef]) -> Sequence[Observation]:
            seen = list(await observe(self, runs))
            listed = {box.sandbox for box in await self.owned()}
            lost = [ref for ref in runs if ref.sandbox not in listed]
            gone = {ref.run: Gone(ref.run, self.clock.now_s()) for ref in lost}
            return [gone.get(it.run, it) for it in seen]

        return patched

    return around(SimProvider, "observe", make)


PLANTS: tuple[Plant, ...] = (
    no_intent_before_effect,
    stop_believed_when_asked,
    stop_asked_once,
    start_asked_once,
    begins_before_its_handle_is_durable,
    first_phase_taken_for_the_start,
    idle_sandbox_forgotten,
    scratch_forgotten,
    no_call_deadline,
    retry_after_ignored,
    bucket_ignored,
    sweep_knows_nobody,
    sweep_ends_what_is_unreadable,
    sweep_never,
    push_is_the_only_news,
    push_means_gone,
    missing_means_gone,
    unlisted_means_gone,
)
