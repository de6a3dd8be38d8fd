"""Continues an object that is under way: stops unwanted runs, starts wanted ones, and reports
whether it moves, what it waits for, and when to look again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import (
    MAKE_IT_FIT,
    ROLL_OVERS_IDLE_MAX,
    rolls_over,
)
from fleetctl.controllers.model import ADOPTED, Run, RunState
from fleetctl.controllers.planning.kind_controller import KeepRunning, KindController, StopNow
from fleetctl.controllers.planning.plan import (
    Action,
    CloseSandbox,
    Phase,
    Plan,
    Rollout,
    Shortage,
    Start,
    Stop,
)
from fleetctl.controllers.schedule.affordable import (
    add_awaited,
    explain_capacity,
    explain_denial,
    payable_later,
    queued_by,
)
from fleetctl.controllers.schedule.capacity import PassSlots, plan_spills, spills_at_s
from fleetctl.controllers.schedule.desired import DesiredObject, ends_at_s
from fleetctl.controllers.schedule.end import describe_stopping
from fleetctl.controllers.schedule.starts import StartSupply, plan_starts, sort_sandboxes
from fleetctl.specs.values.hints import HintedText

SCALED_DOWN = "ScaledDown"
PREEMPTED = "Preempted"

WAITING_SHOWN_MAX = 5


def plan_advance(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Plan:
    """Always decides."""
    providers = _list_providers(desired)
    if not providers:
        return _await_provider(desired)
    parallelism = desired.controller.policy.parallelism
    if parallelism is None:
        parallelism = sum(desired.providers[name] for name in providers)
        if desired.controller.together:
            parallelism = max(parallelism, desired.controller.total or 0)

    slots = PassSlots(desired, history, now_s)
    stops, shortages = _plan_stops(desired, history, slots, parallelism, now_s)
    closes, idle = sort_sandboxes(desired, history, slots, now_s)
    # A stopping run and an idle sandbox still hold their machine, so they count against
    # parallelism.
    held = len(history.live) + len(closes) + len(idle)
    supply = StartSupply(slots, idle, parallelism - len(history.live), parallelism - held)
    found = plan_starts(desired, history, supply, now_s)

    asked_for = desired.controller.asks(history)
    if not found.full and found.at_capacity is None and asked_for is None:
        # Every unit that could run now has its sandbox; a unit that backs off gets a new one later.
        closes += tuple(CloseSandbox(box.name, "no task to give it") for box in found.idle)
    wake_at_s = now_s if found.full else wakes_at_s(desired, history, now_s)
    actions: tuple[Action, ...] = (*stops, *closes, *found.starts)
    plan = build_running_plan(desired, history, actions, wake_at_s, now_s)

    if asked_for is not None and history.started and plan.phase is Phase.PENDING:
        # Between two trials of a search that works out where to look next.
        plan = replace(plan, phase=Phase.RUNNING, reason="InProgress", message="")
    if desired.lacking is not None:
        plan = add_awaited(plan, desired.lacking)
    if shortages:
        plan = replace(plan, shortages=shortages)
    if found.queued is not None:
        plan = queued_by(plan, desired, slots, found.queued, now_s)
    if found.unpaid is not None:
        denied = explain_denial(plan, desired, history, found.unpaid.denied)
        return payable_later(denied, slots, found.unpaid.full, now_s)
    if found.at_capacity is not None:
        return explain_capacity(plan, desired, slots, found.at_capacity, now_s)
    return plan


def _await_provider(desired: DesiredObject) -> Plan:
    """Returns the wait for any of its candidates, none of which is declared."""
    wanted = " or ".join(f"`{name}`" for name in desired.controller.candidates)
    return Plan(
        (),
        Phase.PENDING,
        "NoProvider",
        f"there is no provider {wanted} yet",
        hint="`kind: Provider` with that name declares one",
    )


def _list_providers(desired: DesiredObject) -> list[str]:
    """Candidates where something may start."""
    return [name for name in desired.controller.candidates if name in desired.providers]


def _plan_stops(
    desired: DesiredObject,
    history: History,
    slots: PassSlots,
    parallelism: int,
    now_s: float,
) -> tuple[tuple[Stop, ...], dict[str, Shortage]]:
    """Returns runs that must not go on here, and the shortages that this shows."""
    stops = tuple(find_unwanted(desired.controller, history, parallelism))
    stops += tuple(_plan_evictions(desired, history, {it.run for it in stops}))
    # A run that is stopped anyway needs no other provider; the next pass looks at the rest.
    if stops:
        return (stops, {})
    return plan_spills(slots, history, desired, now_s)


def _plan_evictions(
    desired: DesiredObject,
    history: History,
    stopped: set[str],
) -> Iterator[Stop]:
    """Runs that make room for others of their queue. Stopped as any other run, they have their
    grace time for a checkpoint, and their units start again without a failure.
    """
    grace_s = desired.controller.policy.grace_s
    for name, why in desired.evicted.items():
        run = history.live.get(name)
        if run is not None and run.state is not RunState.STOPPING and name not in stopped:
            yield Stop(name, PREEMPTED, grace_s, why)


def find_unwanted(
    controller: KindController,
    history: History,
    parallelism: int,
) -> Iterator[Stop]:
    """Yields runs that the spec does not want now, then those above parallelism, the youngest
    first; where the rollout lets running work end, these go on, and no unit starts until enough
    have ended.

    An adopted run keeps others from starting, and is not stopped for having come last.
    """
    grace_s = controller.policy.grace_s
    going_on: list[Run] = []
    for run in history.live.values():
        if run.state is RunState.STOPPING:
            continue
        answer = controller.keep(history, run)
        match answer:
            case StopNow(reason=reason, message=message):
                yield Stop(run.name, reason, grace_s, message)
            case KeepRunning():
                going_on.append(run)
    above = len(going_on) - parallelism
    if above > 0 and controller.policy.rollout is Rollout.REPLACE:
        stoppable = [run for run in going_on if run.placed != ADOPTED]
        stoppable.sort(key=lambda run: (-run.created_at_s, -run.index))
        for run in stoppable[:above]:
            yield Stop(run.name, SCALED_DOWN, grace_s)


def build_running_plan(
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
    if moving and "warning" not in summary and (warning := _describe_outlived(desired, history)):
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


def _describe_outlived(desired: DesiredObject, history: History) -> str:
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
