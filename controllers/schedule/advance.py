"""Continues an object that is under way: stops unwanted runs, starts wanted ones, and reports what
they wait for. Pure; the last rule of controllers/reconcile.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import ADOPTED, Run, RunState
from fleetctl.controllers.planning.kind_controller import KeepRunning, KindController, StopNow
from fleetctl.controllers.planning.plan import CloseSandbox, Phase, Plan, Rollout, Shortage, Stop
from fleetctl.controllers.schedule.blocked import (
    add_awaited,
    at_capacity_by,
    denied_by,
    payable_later,
    queued_by,
)
from fleetctl.controllers.schedule.capacity import PassSlots, plan_spills
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.controllers.schedule.progress import under_way, wakes_at_s
from fleetctl.controllers.schedule.starts import StartSupply, plan_starts, sort_sandboxes

SCALED_DOWN = "ScaledDown"
PREEMPTED = "Preempted"


def plan_advance(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Plan:
    """Always decides."""
    places = _list_providers(desired)
    if not places:
        wanted = " or ".join(f"`{name}`" for name in desired.controller.candidates)
        text = f"there is no provider {wanted} yet"
        hint = "`kind: Provider` with that name declares one"
        return Plan((), Phase.PENDING, "NoProvider", text, hint=hint)
    parallelism = desired.controller.policy.parallelism
    if parallelism is None:
        parallelism = sum(desired.providers[name] for name in places)
    slots = PassSlots(desired, history, now_s)
    stops, shortages = _plan_stops(
        desired,
        history,
        slots,
        parallelism,
        now_s,
    )
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
    plan = under_way(
        desired,
        history,
        (*stops, *closes, *found.starts),
        wake_at_s,
        now_s,
    )
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
        denied = denied_by(plan, desired, history, found.unpaid.denied)
        return payable_later(denied, slots, found.unpaid.full, now_s)
    if found.at_capacity is not None:
        return at_capacity_by(plan, desired, slots, found.at_capacity, now_s)
    return plan


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
