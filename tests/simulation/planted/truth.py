"""Bugs in reading what a provider says: taking one thing for another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from fleetctl.controllers.model import Alive, Ended, Gone, Run, RunState
from fleetctl.engine.execute import executor
from fleetctl.engine.observe import observations
from fleetctl.engine.observe.intake import ReplyHandler
from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.shared.messages import StartUnknown, StartWaits
from tests.simulation import observing
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]

FAR_AWAY_S = 4e9  # as a time of the simulated clock


def gone_believed_at_once() -> Context:
    """`Gone` is believed although the run may not be visible yet."""

    def make(outcome: Callable[..., Run | None]) -> Callable[..., Run | None]:
        return lambda run, seen, **options: outcome(run, seen, settled=True)

    return around(observations, "conclude_run", make)


def lost_recorded_as_failed() -> Context:
    """What the infrastructure lost is recorded as the application's failure."""
    return _recorded(RunState.LOST, RunState.FAILED)


def failed_recorded_as_lost() -> Context:
    """What the application failed is recorded as the infrastructure's loss."""
    return _recorded(RunState.FAILED, RunState.LOST)


def failed_recorded_as_succeeded() -> Context:
    """An end is an end."""
    return _recorded(RunState.FAILED, RunState.SUCCEEDED)


def _recorded(really: RunState, recorded: RunState) -> Context:
    def make(outcome: Callable[..., Run | None]) -> Callable[..., Run | None]:
        def patched(run: Run, seen: Any, **options: Any) -> Run | None:
            after = outcome(run, seen, **options)
            return replace(after, state=recorded) if after and after.state is really else after

        return patched

    return around(observations, "conclude_run", make)


def preemption_blamed_on_the_task() -> Context:
    """The word `infrastructure` in an end record is not read."""

    def make(outcome: Callable[..., Run | None]) -> Callable[..., Run | None]:
        def patched(run: Run, seen: Any, **options: Any) -> Run | None:
            if isinstance(seen, Ended):
                seen = replace(seen, infrastructure=False)
            return outcome(run, seen, **options)

        return patched

    return around(observations, "conclude_run", make)


def waiting_costs_an_attempt() -> Context:
    """A provider's "not now" counts as a loss."""

    def make(call: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: ReplyHandler, owner: Any, fact: Any, now_s: float) -> Any:
            run = owner.work.history.live.get(fact.run) if owner.work else None
            if isinstance(fact, StartWaits) and run is not None and run.state is RunState.STARTING:
                lost = replace(run, state=RunState.LOST, ended_at_s=now_s)
                self._records.end(owner.work, lost, None)
                return True
            return call(self, owner, fact, now_s)

        return patched

    return around(ReplyHandler, "handle_reply", make)


def no_answer_means_nothing_began() -> Context:
    """A start without an answer is given up, and the unit starts again under another name."""

    def make(call: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: ReplyHandler, owner: Any, fact: Any, now_s: float) -> Any:
            run = owner.work.history.live.get(fact.run) if owner.work else None
            if isinstance(fact, StartUnknown) and run is not None:
                self._records.end(
                    owner.work, replace(run, state=RunState.STOPPED, ended_at_s=now_s), None
                )
                return True
            return call(self, owner, fact, now_s)

        return patched

    return around(ReplyHandler, "handle_reply", make)


def refusal_is_waited_for() -> Context:
    """What only the user can change is waited for, as if it could pass by itself."""

    def wait(run: str, message: str, _hint: str) -> StartWaits:
        return StartWaits(run, "Refused", message, FAR_AWAY_S)

    return swapped(executor, "StartRefused", wait)


def stale_sandbox_end_believed() -> Context:
    """An idle sandbox that a look-up misses is taken for closed."""
    return swapped(Observations, "_is_settled_by_end", lambda self, last, fact: True)


def an_end_is_read_behind_an_older_piece() -> Context:
    """A reader finds an end that was written after it read its piece; the events between are never
    read.
    """

    def make(alive: Callable[..., Any]) -> Callable[..., Any]:
        def patched(world: Any, work: Any, ref: Any) -> Any:
            piece = alive(world, work, ref)
            if piece is None or work.end is None:
                return piece
            ended = observing._ended(work, ref)
            return replace(ended, metrics=piece.metrics, checkpoints=piece.checkpoints)

        return patched

    return around(observing, "_piece", make)


def a_piece_is_left_to_the_look_that_has_the_rest() -> Context:
    """What a look reports is dropped where there is more, though its offset is kept."""

    def make(call: Callable[..., bool]) -> Callable[..., bool]:
        def patched(self: Observations, work: Any, run: Run, seen: Any, observed: Any) -> bool:
            if isinstance(seen, Alive) and seen.more:
                seen = replace(seen, metrics=())
            return call(self, work, run, seen, observed)

        return patched

    return around(Observations, "_run_seen", make)


def a_begin_without_a_word_runs_for_ever() -> Context:
    """A run whose begin got a reply counts as running, though no event of it was ever seen."""

    def make(outcome: Callable[..., Run | None]) -> Callable[..., Run | None]:
        def patched(run: Run, seen: Any, **options: Any) -> Run | None:
            unheard = run.handle and run.sandbox == run.name and run.started_at_s is None
            if isinstance(seen, Gone) and unheard:
                return None
            return outcome(run, seen, **options)

        return patched

    return around(observations, "conclude_run", make)


PLANTS: tuple[Plant, ...] = (
    an_end_is_read_behind_an_older_piece,
    a_piece_is_left_to_the_look_that_has_the_rest,
    a_begin_without_a_word_runs_for_ever,
    gone_believed_at_once,
    lost_recorded_as_failed,
    failed_recorded_as_lost,
    failed_recorded_as_succeeded,
    preemption_blamed_on_the_task,
    waiting_costs_an_attempt,
    no_answer_means_nothing_began,
    refusal_is_waited_for,
    stale_sandbox_end_believed,
)
