"""Explains in a plan why an object's other units do not start: no capacity, or no money. Pure;
called by advance.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.money.budget import BudgetDenial
from fleetctl.controllers.planning.kind_controller import Unit
from fleetctl.controllers.planning.placement import CandidateJudgement
from fleetctl.controllers.planning.plan import Plan, Start
from fleetctl.controllers.schedule.affordable import QueuedStart
from fleetctl.controllers.schedule.capacity import PassSlots
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.controllers.schedule.stops import end_all
from fleetctl.controllers.trials.winner import MissingInput


def at_capacity_by(
    plan: Plan,
    desired: DesiredObject,
    slots: PassSlots,
    unit: Unit,
    now_s: float,
) -> Plan:
    """Returns the same plan with the reason why the rest does not start. The engine wakes it when
    capacity comes free.
    """
    judged = slots.judged(unit.template_hash)
    full = slots.full(unit.template_hash)
    why = desired.room.paused or "; ".join(f"provider `{it.provider}`: {it.why}" for it in judged)
    times = (plan.wake_at_s, desired.room.until_s, *(slots.until_s(it.provider) for it in full))
    still = plan.reason == "InProgress" and not plan.active
    reason = "Crowded" if full or desired.room.paused else "NoPlace"
    return replace(
        plan,
        reason=reason if still else plan.reason,
        message=why if still else plan.message,
        waiting_on=(why, *plan.waiting_on),
        wake_at_s=min((it for it in times if it is not None and it >= now_s), default=None),
        at_capacity=tuple(it.provider for it in full if slots.shared(it.provider)),
    )


def queued_by(
    plan: Plan,
    desired: DesiredObject,
    slots: PassSlots,
    queued: QueuedStart,
    now_s: float,
) -> Plan:
    """Returns the same plan with the reason why its queue admits no more runs. The engine wakes it
    when it is its turn, or when a full provider has capacity.
    """
    assert desired.turn is not None, "what is in no queue is not refused by one"
    text = queued.refusal.message
    still = not plan.active and plan.reason in ("InProgress", "Waiting")
    times = (plan.wake_at_s, *(slots.until_s(it.provider) for it in queued.full))
    started = any(isinstance(action, Start) for action in plan.actions)
    me = desired.turn.me
    return replace(
        plan,
        reason=queued.refusal.reason if still else plan.reason,
        message=text if still else plan.message,
        hint=(queued.refusal.hint if still else "") or plan.hint,
        waiting_on=(text, *plan.waiting_on),
        wake_at_s=min((it for it in times if it is not None and it >= now_s), default=None),
        at_capacity=tuple(it.provider for it in queued.full if slots.shared(it.provider)),
        queued=replace(
            me, asks=queued.asks, stands_since_s=now_s if started else me.stands_since_s
        ),
    )


def add_awaited(plan: Plan, lacking: MissingInput) -> Plan:
    """Returns the same plan with what another object has yet to provide. The engine wakes it
    then.
    """
    waiting_on = (lacking.message, *plan.waiting_on)
    if plan.active:
        return replace(plan, waiting_on=waiting_on)
    return replace(
        plan,
        reason=lacking.reason,
        message=lacking.message,
        hint=lacking.hint or plan.hint,
        waiting_on=waiting_on,
    )


def denied_by(
    plan: Plan,
    desired: DesiredObject,
    history: History,
    denied: BudgetDenial,
) -> Plan:
    """Returns the same plan with the money that the rest waits for; or the end of the object, where
    its budget requires it. The engine wakes it when money comes free.
    """
    text = denied.message
    if denied.cancel:
        # The next pass finds it finished (end.py) and ends it; this one starts no more units.
        return replace(
            plan,
            actions=end_all(history, "BudgetExceeded", desired.controller.policy),
            message=text,
            hint="",
            wake_at_s=0.0,
            extra={**plan.extra, "overBudget": text},
            denied=denied,
        )
    still = not plan.active and plan.reason in ("InProgress", "Waiting")
    wakes = [at_s for at_s in (plan.wake_at_s, denied.until_s) if at_s is not None]
    return replace(
        plan,
        reason=denied.reason if still else plan.reason,
        message=text if still else plan.message,
        hint=(denied.hint if still else "") or plan.hint,
        waiting_on=(text, *plan.waiting_on),
        wake_at_s=min(wakes, default=None),
        denied=denied,
    )


def payable_later(
    plan: Plan,
    slots: PassSlots,
    places: Sequence[CandidateJudgement],
    now_s: float,
) -> Plan:
    """Returns the same plan, looked at again also when one of these providers, which the money
    covers, has capacity. It waits for that capacity: more money would only start it elsewhere.
    """
    if not places:
        return plan
    times = (plan.wake_at_s, *(slots.until_s(it.provider) for it in places))
    still = plan.denied is not None and plan.reason == plan.denied.reason and not plan.active
    why = "; ".join(f"provider `{it.provider}`, which is paid for: {it.why}" for it in places)
    return replace(
        plan,
        reason="Crowded" if still else plan.reason,
        message=f"{why}; {plan.message}" if still else plan.message,
        waiting_on=(why, *plan.waiting_on),
        wake_at_s=min((it for it in times if it is not None and it >= now_s), default=None),
        at_capacity=tuple(it.provider for it in places if slots.shared(it.provider)),
    )
