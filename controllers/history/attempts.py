"""Settles the end of an attempt for its unit: finished, given up, or due again.

Called by history.py as runs end and as their rows are read back, so that a restart is no second
code path. Changes the history that it is given; retry_limits.py decides when a unit may run again,
and when never.
"""

from __future__ import annotations

from fleetctl.controllers.history.facts import HistoryFacts, OutdatedSuccess, Score, UnfinishedUnit
from fleetctl.controllers.history.retry_limits import (
    FEWER_NODES,
    ROLL_OVERS_IDLE_MAX,
    FailureAction,
    are_retries_spent,
    due_at_s,
    failure_action,
    has_hardly_begun,
    has_progressed,
    rolls_over,
)
from fleetctl.controllers.history.scores import ParetoFront
from fleetctl.controllers.model import CACHED, Run, RunState

FIRST_MAX = 3  # failures that a status shows: the first are the cause, the rest follow


def record_attempt(
    history: HistoryFacts,
    unit: UnfinishedUnit,
    run: Run,
    score: Score | None,
    step: int | None,
) -> bool:
    """Records one more ended attempt of a unit. Returns False when it succeeded, and the unit is
    settled.

    step: the greatest that it reported, where it rolls over.
    """
    unit.last = run
    unit.shrunk = unit.shrunk + 1 if run.reason == FEWER_NODES else 0
    saved = unit.steps.take(run)
    if saved:
        unit.app_failures = unit.infra_failures = 0
    if run.state is RunState.SUCCEEDED:
        record_success(history, run, score)
        return False
    if run.state in (RunState.FAILED, RunState.LOST):
        _count_failure(
            history,
            unit,
            run,
            step,
            saved=saved,
        )
    if is_final(history, run) and score is not None:
        _record_score(history, run.index, score)
    return True


def is_final(history: HistoryFacts, run: Run) -> bool:
    """Returns true if its kind ended it permanently: neither succeeded nor failed."""
    return run.state is RunState.STOPPED and run.reason in history.limits.final


def record_success(
    history: HistoryFacts,
    run: Run,
    score: Score | None,
) -> None:
    """Marks the unit as finished, after any earlier outcome."""
    added = history.succeeded.add(run.index)
    assert added, f"index {run.index} succeeded twice"
    history.cached += run.reason == CACHED
    history.outdated.pop(run.index, None)
    if score is not None:
        _record_score(history, run.index, score)
    at_s = run.ended_at_s or run.created_at_s
    if history.first_result_at_s is None or at_s < history.first_result_at_s:
        history.first_result_at_s = at_s
    del history.unfinished[run.index]


def settle_unit(
    history: HistoryFacts,
    unit: UnfinishedUnit,
    run: Run,
) -> None:
    """Gives up a unit without success, or makes it due again, after its last ended attempt."""
    if run.state is RunState.REFUSED:
        history.refused = _pick_later(history.refused, run)
    if is_final(history, run):
        history.pruned.add(run.index)
        history.outdated.pop(run.index, None)
        del history.unfinished[run.index]
        return
    if run.state in (RunState.STOPPED, RunState.REFUSED):
        requeue_unit(history, run.index, unit, 0.0)
        return
    action = failure_action(history.limits, run)
    app_failure = run.state is RunState.FAILED
    if app_failure and action is FailureAction.FAIL_JOB:
        history.failed_job = _pick_later(history.failed_job, run)
    over = app_failure and action in (FailureAction.FAIL_INDEX, FailureAction.FAIL_JOB)
    if over or are_retries_spent(
        history.limits,
        app_failures=unit.app_failures,
        infra_failures=unit.infra_failures,
        idle_lives=unit.idle_lives,
    ):
        if rolls_over(run):
            _count_lost(history, run)  # the one for which it is given up
        history.failed.add(run.index)
        history.outdated.pop(run.index, None)
        del history.unfinished[run.index]
        return
    failures = count_brakes(unit) if rolls_over(run) else unit.app_failures
    requeue_unit(history, run.index, unit, due_at_s(history.limits, run, failures=failures))


def count_brakes(unit: UnfinishedUnit) -> int:
    """Returns the number of roll-overs in a row for which its next attempt waits."""
    return max(unit.short_lives, unit.idle_lives - ROLL_OVERS_IDLE_MAX + 1, 0)


def requeue_unit(
    history: HistoryFacts,
    index: int,
    unit: UnfinishedUnit,
    at_s: float,
) -> None:
    """Its next attempt may begin then, and no earlier."""
    history.waiting.discard(index, unit.due_at_s)
    unit.due_at_s = at_s
    history.waiting.add(index, at_s)


def record_spending(history: HistoryFacts, run: Run) -> None:
    """Adds the cost of an ended run, wanted or not."""
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


def mark_outdated(history: HistoryFacts, run: Run) -> None:
    """Records that a wanted unit's success has another content than the desired one."""
    history.outdated[run.index] = outdated_of(run)


def outdated_of(run: Run) -> OutdatedSuccess:
    """Returns the record of a lost success; a reused success has the cost of the original."""
    if run.reason == CACHED:
        return OutdatedSuccess(run.worth_s or 0.0, run.worth_usd)
    ended_at_s = run.ended_at_s if run.ended_at_s is not None else run.created_at_s
    began_at_s = run.started_at_s if run.started_at_s is not None else ended_at_s
    return OutdatedSuccess(max(0.0, ended_at_s - began_at_s), run.cost_usd)


def has_begun(run: Run) -> bool:
    """Returns False for an attempt that was taken back or refused before it began."""
    return run.started_at_s is not None or run.state not in (RunState.STOPPED, RunState.REFUSED)


def _record_score(
    history: HistoryFacts,
    index: int,
    score: Score,
) -> None:
    if isinstance(score, tuple):
        history.scores[index] = score[0]
        history.front = history.front or ParetoFront()
        history.front.add(index, score)
        return
    history.scores[index] = score
    history.lowest = min(history.lowest or (score, index), (score, index))
    history.highest = min(history.highest or (-score, index), (-score, index))


def _count_failure(
    history: HistoryFacts,
    unit: UnfinishedUnit,
    run: Run,
    step: int | None,
    *,
    saved: bool,
) -> None:
    """Counts a failed attempt: whether it hardly began, and whether it got further. step: the
    greatest that it reported; saved: it completed a new checkpoint.
    """
    if rolls_over(run):
        unit.short_lives = unit.short_lives + 1 if has_hardly_begun(run) else 0
        further = saved or has_progressed(unit.reached, step)
        unit.idle_lives = 0 if further else unit.idle_lives + 1
        unit.reached = step if has_progressed(unit.reached, step) else unit.reached
        return
    unit.short_lives = unit.idle_lives = 0
    ignored = failure_action(history.limits, run) is FailureAction.IGNORE
    if run.state is RunState.LOST or ignored:
        # An ignored failure is capped like a lost run, so that it cannot repeat for ever.
        unit.infra_failures += 1
        _count_lost(history, run)
    else:
        unit.app_failures += 1
        history.failures += 1
        _note_failure(history, run)


def _count_lost(history: HistoryFacts, run: Run) -> None:
    history.infra_failures += 1
    _note_failure(history, run)


def _note_failure(history: HistoryFacts, run: Run) -> None:
    history.last_failure = _pick_later(history.last_failure, run)
    history.first_failures = _keep_first(history.first_failures, run)


def _keep_first(known: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    """Returns the known first failures with `run` among them, if it is one of the first."""
    if len(known) == FIRST_MAX and _end_order(run) >= _end_order(known[-1]):
        return known
    return tuple(sorted((*known, run), key=_end_order)[:FIRST_MAX])


def _end_order(run: Run) -> tuple[float, int, int]:
    return run.ended_at_s or run.created_at_s, run.index, run.attempt


def _pick_later(known: Run | None, run: Run) -> Run:
    """Returns the run that ended last, so that the order of reading rows back makes no
    difference.
    """
    if known is None:
        return run
    return max(known, run, key=_end_order)
