"""Checks that a plan keeps the promises before it is carried out. A finding is a bug of ours: the
engine drops the plan, reports it and leaves the object as it is, rather than act on a wrong
decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.plan import CloseSandbox, Drop, Plan, Reuse, Start, Stop


def lint_plan(
    plan: Plan,
    history: History,
    *,
    parallelism: int | None,
) -> list[str]:
    """Returns sentences about violated promises; empty when the plan is sound. parallelism None =
    no limit.
    """
    starts = [action for action in plan.actions if isinstance(action, Start)]
    return [
        *_check_starts(starts, history, parallelism),
        *_check_units(plan, history),
        *_check_stops(plan, history),
        *_check_drops(plan, history),
    ]


def _check_starts(
    starts: list[Start],
    history: History,
    parallelism: int | None,
) -> Iterator[str]:
    new = sum(1 for start in starts if start.sandbox is None)
    idle = sum(1 for box in history.sandboxes.values() if not box.busy)
    live = len(history.live)
    if parallelism is not None and new and live + idle + new > parallelism:
        yield f"{live} live, {idle} idle and {new} new exceed parallelism {parallelism}"
    if parallelism is not None and starts and live + len(starts) > parallelism:
        yield f"{live} live and {len(starts)} starts exceed parallelism {parallelism}"
    for start in starts:
        if start.sandbox is not None and start.sandbox not in history.sandboxes:
            yield f"index {start.index} would use the unknown sandbox {start.sandbox}"


def _check_units(plan: Plan, history: History) -> Iterator[str]:
    """Checks that a unit that begins, or takes a result over, is not under way and not done."""
    begun = [action for action in plan.actions if isinstance(action, Start | Reuse)]
    for index, count in Counter(it.index for it in begun).items():
        if count > 1:
            yield f"index {index} would start {count} times"
    for it in begun:
        if it.index in history.live_by_index:
            yield f"index {it.index} is live and would start again"
        if it.index in history.pruned:
            yield f"index {it.index} was ended for good and would start again"
        if it.index in history.succeeded:
            yield f"index {it.index} succeeded and would start again"
        if it.attempt != history.next_attempt(it.index):
            yield f"index {it.index} would reuse attempt {it.attempt}"


def _check_stops(plan: Plan, history: History) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, Stop) and action.run not in history.live:
            yield f"{action.run} is not live and would be stopped"
        if isinstance(action, CloseSandbox) and action.sandbox not in history.sandboxes:
            yield f"sandbox {action.sandbox} is not ours and would be closed"


def _check_drops(plan: Plan, history: History) -> Iterator[str]:
    drops = any(isinstance(action, Drop) for action in plan.actions)
    if drops and (history.live or history.sandboxes):
        yield "the object would be dropped while runs of it are live"
