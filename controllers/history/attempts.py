"""What the end of an attempt makes of its unit: finished, given up, or due again.

Called by history.py as runs end and by replay.py as their rows are read back, so that a restart
is no second code path. Changes the history that it is given; when a unit may run again, and when
never, is retry.py's.
"""

from __future__ import annotations

from fleetctl.controllers.history.facts import Facts, Outdated, Score, Unfinished
from fleetctl.controllers.history.retries.retry import (
    FEWER_NODES,
    ROLL_OVERS_IDLE_MAX,
    FailureAction,
    due_at_s,
    failure_action,
    hardly_began,
    progressed,
    rolls_over,
    spent,
)
from fleetctl.controllers.model import CACHED, Run, RunState


def take(history: Facts, unit: Unfinished, run: Run, score: Score | None, step: int | None) -> bool:
    """One more ended attempt of a unit. False when it succeeded, and nothing is left to settle.

    step: the greatest that it reported, where it rolls over.
    """
    unit.last = run
    unit.shrunk = unit.shrunk + 1 if run.reason == FEWER_NODES else 0
    saved = unit.steps.take(run)
    if saved:
        unit.app_failures = unit.infra_failures = 0
    if run.state is RunState.SUCCEEDED:
        succeed(history, run, score)
        return False
    if run.state in (RunState.FAILED, RunState.LOST):
        _count_failure(history, unit, run, step, saved=saved)
    if is_final(history, run) and score is not None:
        _scored(history, run.index, score)
    return True


def is_final(history: Facts, run: Run) -> bool:
    """Its kind ended it for good: over, and neither succeeded nor failed."""
    return run.state is RunState.STOPPED and run.reason in history.limits.final


def succeed(history: Facts, run: Run, score: Score | None) -> None:
    """The unit is finished, whatever came before."""
    added = history.succeeded.add(run.index)
    assert added, f"index {run.index} succeeded twice"
    history.cached += run.reason == CACHED
    history.outdated.pop(run.index, None)
    if score is not None:
        _scored(history, run.index, score)
    at_s = run.ended_at_s or run.created_at_s
    if history.first_result_at_s is None or at_s < history.first_result_at_s:
        history.first_result_at_s = at_s
    del history.unfinished[run.index]


def settle(history: Facts, unit: Unfinished, run: Run) -> None:
    """After its last ended attempt, a unit without success is given up or due again."""
    if run.state is RunState.REFUSED:
        history.refused = _later(history.refused, run)
    if is_final(history, run):
        history.pruned.add(run.index)
        history.outdated.pop(run.index, None)
        del history.unfinished[run.index]
        return
    if run.state in (RunState.STOPPED, RunState.REFUSED):
        requeue(history, run.index, unit, 0.0)
        return
    action = failure_action(history.limits, run)
    app_failure = run.state is RunState.FAILED
    if app_failure and action is FailureAction.FAIL_JOB:
        history.failed_job = _later(history.failed_job, run)
    over = app_failure and action in (FailureAction.FAIL_INDEX, FailureAction.FAIL_JOB)
    if over or spent(
        history.limits, app_failures=unit.app_failures, infra_failures=unit.infra_failures
    ):
        history.failed.add(run.index)
        history.outdated.pop(run.index, None)
        del history.unfinished[run.index]
        return
    failures = brakes(unit) if rolls_over(run) else unit.app_failures
    requeue(history, run.index, unit, due_at_s(history.limits, run, failures=failures))


def brakes(unit: Unfinished) -> int:
    """For how many roll-overs in a row its next attempt waits."""
    return max(unit.short_lives, unit.idle_lives - ROLL_OVERS_IDLE_MAX + 1, 0)


def requeue(history: Facts, index: int, unit: Unfinished, at_s: float) -> None:
    """Its next attempt may begin then, and no earlier."""
    history.waiting.discard(index, unit.due_at_s)
    unit.due_at_s = at_s
    history.waiting.add(index, at_s)


def spend(history: Facts, run: Run) -> None:
    """An ended run counts, wanted or not."""
    history.working.add(run)
    if run.saved_step is not None:
        history.saved_by.add(run.index)
    cost_usd = run.cost_usd
    if cost_usd is None:
        history.unpriced += 1
        if run.started_at_s is not None and run.ended_at_s is not None:
            history.unpriced_s += max(0.0, run.ended_at_s - run.started_at_s)
    else:
        history.spent_usd += cost_usd
    history.charged_usd += (run.usd if run.usd is not None else cost_usd) or 0.0


def outdate(history: Facts, run: Run) -> None:
    """The success of a wanted unit is that of another content."""
    history.outdated[run.index] = outdated_of(run)


def outdated_of(run: Run) -> Outdated:
    """What is lost with a success; with one that was taken over, what it stands for."""
    if run.reason == CACHED:
        return Outdated(run.worth_s or 0.0, run.worth_usd)
    ended_at_s = run.ended_at_s if run.ended_at_s is not None else run.created_at_s
    began_at_s = run.started_at_s if run.started_at_s is not None else ended_at_s
    return Outdated(max(0.0, ended_at_s - began_at_s), run.cost_usd)


def begun(run: Run) -> bool:
    """False for an attempt that was taken back or refused before it began."""
    return run.started_at_s is not None or run.state not in (RunState.STOPPED, RunState.REFUSED)


def _scored(history: Facts, index: int, score: Score) -> None:
    if isinstance(score, tuple):
        history.scores[index] = score[0]
        history.front.add(index, score)
        return
    history.scores[index] = score
    history.lowest = min(history.lowest or (score, index), (score, index))
    history.highest = min(history.highest or (-score, index), (-score, index))


def _count_failure(
    history: Facts, unit: Unfinished, run: Run, step: int | None, *, saved: bool
) -> None:
    """step: the greatest that it reported; saved: whether it completed a checkpoint that is new."""
    if rolls_over(run):
        unit.short_lives = unit.short_lives + 1 if hardly_began(run) else 0
        further = saved or progressed(unit.reached, step)
        unit.idle_lives = 0 if further else unit.idle_lives + 1
        unit.reached = step if progressed(unit.reached, step) else unit.reached
        return
    unit.short_lives = unit.idle_lives = 0
    history.last_failure = _later(history.last_failure, run)
    ignored = failure_action(history.limits, run) is FailureAction.IGNORE
    if run.state is RunState.LOST or ignored:
        # An ignored failure is capped like a lost run, so that it cannot repeat for ever.
        unit.infra_failures += 1
        history.infra_failures += 1
    else:
        unit.app_failures += 1
        history.failures += 1


def _later(known: Run | None, run: Run) -> Run:
    """Whichever ended last, so that the order of reading rows back makes no difference."""
    if known is None:
        return run
    return max(known, run, key=lambda it: (it.ended_at_s or it.created_at_s, it.index, it.attempt))
