"""How an object that is under way goes on: stop what should not run, start what should, and say
what is waited for. Pure; the last rule of controllers/reconcile.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import ADOPTED, Run, RunState
from fleetctl.controllers.planning.kind import Keep, KindController, StopNow
from fleetctl.controllers.planning.plan import CloseSandbox, Phase, Plan, Rollout, Shortage, Stop
from fleetctl.controllers.schedule.blocked import (
    at_capacity_by,
    awaiting,
    denied_by,
    payable_later,
    queued_by,
)
from fleetctl.controllers.schedule.capacity import Slots, spilled
from fleetctl.controllers.schedule.desired import Desired
from fleetctl.controllers.schedule.progress import under_way, wakes_at_s
from fleetctl.controllers.schedule.starts import Supply, sort_sandboxes, started
from fleetctl.specs.values.hints import with_hint

SCALED_DOWN = "ScaledDown"
PREEMPTED = "Preempted"


def advance(desired: Desired, history: History, now_s: float) -> Plan:
    """Always decides."""
    places = _places(desired)
    if not places:
        wanted = " or ".join(f"`{name}`" for name in desired.controller.candidates)
        text = with_hint(
            f"there is no provider {wanted}", "`kind: Provider` with that name declares one"
        )
        return Plan((), Phase.PENDING, "NoProvider", text)
    parallelism = desired.controller.policy.parallelism
    if parallelism is None:
        parallelism = sum(desired.providers[name] for name in places)
    slots = Slots(desired, history, now_s)
    stops, shortages = _stops(desired, history, slots, parallelism, now_s)
    closes, idle = sort_sandboxes(desired, history, slots, now_s)
    # A stopping run and an idle sandbox still hold their machine, so they count against
    # parallelism.
    held = len(history.live) + len(closes) + len(idle)
    supply = Supply(slots, idle, parallelism - len(history.live), parallelism - held)
    found = started(desired, history, supply, now_s)
    asked_for = desired.controller.asks(history)
    if not found.full and found.at_capacity is None and asked_for is None:
        # Whatever could run now has its place; a unit that backs off gets a new sandbox later.
        closes += tuple(CloseSandbox(box.name, "no task to give it") for box in found.idle)
    wake_at_s = now_s if found.full else wakes_at_s(desired, history, now_s)
    plan = under_way(desired, history, (*stops, *closes, *found.starts), wake_at_s, now_s)
    if asked_for is not None and history.started and plan.phase is Phase.PENDING:
        # Between two trials of a search that works out where to look next.
        plan = replace(plan, phase=Phase.RUNNING, reason="InProgress", message="")
    if desired.lacking is not None:
        plan = awaiting(plan, desired.lacking)
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


def _places(desired: Desired) -> list[str]:
    """Candidates where something may start."""
    return [name for name in desired.controller.candidates if name in desired.providers]


def _stops(
    desired: Desired, history: History, slots: Slots, parallelism: int, now_s: float
) -> tuple[tuple[Stop, ...], dict[str, Shortage]]:
    """Runs that must not go on here, and what that tells of their places."""
    stops = tuple(unwanted(desired.controller, history, parallelism))
    stops += tuple(_evicted(desired, history, {it.run for it in stops}))
    # What is stopped anyway needs no other place; the next pass looks at the rest.
    return (stops, {}) if stops else spilled(slots, history, desired, now_s)


def _evicted(desired: Desired, history: History, stopped: set[str]) -> Iterator[Stop]:
    """Runs that make room for others of their queue. Stopped as any other run, they have their
    grace time for a checkpoint, and their units start again without a failure.
    """
    grace_s = desired.controller.policy.grace_s
    for name, why in desired.evicted.items():
        run = history.live.get(name)
        if run is not None and run.state is not RunState.STOPPING and name not in stopped:
            yield Stop(name, PREEMPTED, grace_s, why)


def unwanted(controller: KindController, history: History, parallelism: int) -> Iterator[Stop]:
    """Runs that the spec does not want now, then those above parallelism, the youngest first; where
    the rollout lets running work end, these go on, and none starts until enough have ended.

    One that was adopted keeps others from starting, and is not stopped for having come last.
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
            case Keep():
                going_on.append(run)
    above = len(going_on) - parallelism
    if above > 0 and controller.policy.rollout is Rollout.REPLACE:
        stoppable = [run for run in going_on if run.placed != ADOPTED]
        stoppable.sort(key=lambda run: (-run.created_at_s, -run.index))
        for run in stoppable[:above]:
            yield Stop(run.name, SCALED_DOWN, grace_s)
