"""The plan of an object that is under way: whether it moves, what it waits for, and when to look
again. Pure; called by the rules of a pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retries.retry_limits import (
    MAKE_IT_FIT,
    ROLL_OVERS_IDLE_MAX,
    rolls_over,
)
from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.plan import Action, Phase, Plan, Start
from fleetctl.controllers.schedule.capacity import spills_at_s
from fleetctl.controllers.schedule.desired import DesiredObject, ends_at_s
from fleetctl.controllers.schedule.stops import describe_stopping
from fleetctl.specs.values.hints import HintedText

WAITING_SHOWN_MAX = 5


def under_way(
    desired: DesiredObject,
    history: History,
    actions: tuple[Action, ...],
    wake_at_s: float | None,
    now_s: float,
) -> Plan:
    """Returns a plan of these actions, with the status of the object meanwhile."""
    waits = list(_describe_waits(desired, history, now_s))
    waiting = tuple(it.text for it in waits)
    summary = desired.controller.summary(history)
    hint = next((it.hint for it in waits if it.hint), "")
    stuck = desired.waits.keys() | desired.held.keys()
    moving = any(name not in stuck for name in history.live)
    moving = moving or any(isinstance(action, Start) for action in actions)
    begun = history.done + len(history.failed) > 0
    first = next(iter(desired.waits.values()), None)
    trouble = next(iter(desired.troubles.values()), None)
    if first is not None and not moving:
        reason = first.reason
        message = first.message
        hint = first.hint or hint
    elif trouble is not None:
        # Running work goes on; the status shows a reader that the provider serves no more.
        reason = trouble.reason
        message = trouble.message
        hint = trouble.hint or hint
    elif waiting and not moving:
        reason = "Waiting"
        message = waiting[0]
    elif desired.batched:
        reason = "InBatch"
        message = desired.batched
    else:
        reason = "InProgress"
        message = ""
    runs = any(run.state is not RunState.STARTING for run in history.live.values())
    ever = begun or desired.prior.phase is Phase.RUNNING
    # Between one task and the next that is on its way, it runs as well.
    phase = Phase.RUNNING if runs or (ever and moving) else Phase.PENDING
    if moving and "warning" not in summary and (warning := _too_old(desired, history)):
        summary = {**summary, "warning": warning, "hint": MAKE_IT_FIT}
    return Plan(
        actions,
        phase,
        reason,
        message,
        waiting,
        wake_at_s,
        active=bool(moving),
        extra=summary,
        hint=hint,
    )


def wakes_at_s(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> float | None:
    """Returns when this object must be looked at again, by the clock alone."""
    times = (
        history.waiting.next_due_at_s(now_s),
        ends_at_s(desired, now_s),
        spills_at_s(desired, history, now_s),
        # A wait whose time has come is being acted on; waking for it again would spin.
        min(
            (it.retry_at_s for it in desired.waits.values() if it.retry_at_s > now_s), default=None
        ),
    )
    return min((at_s for at_s in times if at_s is not None), default=None)


def _too_old(desired: DesiredObject, history: History) -> str:
    """Returns a sentence on work that outlives its sandboxes and gets no further; empty if all
    progresses.
    """
    for index in history.live_by_index:
        unit = history.unfinished.get(index)
        if unit is not None and unit.idle_lives and unit.last and rolls_over(unit.last):
            idle = unit.idle_lives
            most = history.limits.max_infra_retries + 1
            text = f"{desired.controller.called(index)}: {idle} of at most {most} sandboxes"
            return f"{text} grew too old without a new step"
    return ""


def _describe_waits(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Iterator[HintedText]:
    """Yields a few sentences on the causes of waiting; never one a task."""
    waits = {name: HintedText(it.message, it.hint) for name, it in desired.waits.items()}
    parts = [
        (name, text)
        for name, text in (*waits.items(), *desired.held.items())
        if name in history.live
    ]
    for name, text in parts[:WAITING_SHOWN_MAX]:
        called = desired.controller.called(history.live[name].index)
        yield text.prefixed(f"{called}: ")
    for due_s, index in history.waiting.backing_off(now_s):
        unit = history.unfinished.get(index)
        why = unit.last.reason if unit and unit.last else "a failure"
        if unit and unit.last and rolls_over(unit.last) and unit.idle_lives >= ROLL_OVERS_IDLE_MAX:
            why = f"{unit.idle_lives} sandboxes in a row that grew too old without a new step"
        called = desired.controller.called(index)
        yield HintedText(f"{called}: backing off for {due_s - now_s:.0f} s after {why}")
    if desired.controller.policy.parallelism == 0:
        yield HintedText("spec.parallelism is 0")
    yield from map(HintedText, describe_stopping(history)[:1])
