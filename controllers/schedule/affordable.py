"""Chooses the best provider for a new sandbox with capacity that the object's queue and budgets
allow, explains why other units do not start, and decides if any pending event can still help.

Pure. controllers/status.py reports the explanations, for `apply --wait`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fleetctl.controllers.budget import (
    TOO_SMALL,
    BudgetDenial,
    ReservedCost,
    SandboxTerms,
    UnitPrice,
    lasts_s,
)
from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.kind_controller import Unit
from fleetctl.controllers.planning.placement import CandidateJudgement, ProviderOffer
from fleetctl.controllers.planning.plan import Phase, Plan, Start
from fleetctl.controllers.queues.queue_admission import IN_LINE, QueueAdmission, QueueRefusal
from fleetctl.controllers.queues.queue_state import Asks, QueueAsk, parse_usage, text_of
from fleetctl.controllers.schedule.capacity import PassSlots, spills_at_s
from fleetctl.controllers.schedule.desired import DesiredObject, StartWait, ends_at_s
from fleetctl.controllers.schedule.end import end_all
from fleetctl.controllers.trials.winner import MissingInput


@dataclass(frozen=True, slots=True)
class PaidStart:
    """The provider, the amount set aside, and the judgement of every candidate with money
    considered.
    """

    where: CandidateJudgement
    held: ReservedCost
    judged: tuple[CandidateJudgement, ...]
    queued: str = ""  # its usage of its queue


@dataclass(frozen=True, slots=True)
class UnpaidStart:
    """full: providers that would be paid for, and have no capacity now."""

    denied: BudgetDenial
    full: tuple[CandidateJudgement, ...]


@dataclass(frozen=True, slots=True)
class QueuedStart:
    """Its queue admits no more runs. asks: at each provider with capacity. full: providers without.
    unpaid: providers where the queue would let it start, and no budget does.
    """

    refusal: QueueRefusal
    asks: Asks
    full: tuple[CandidateJudgement, ...] = ()
    unpaid: UnpaidStart | None = None


def reserve_start(
    slots: PassSlots,
    desired: DesiredObject,
    unit: Unit,
    now_s: float,
    *,
    admitted: bool = False,
) -> PaidStart | UnpaidStart | QueuedStart:
    """Sets aside the worst case of a new run, at the best provider that has capacity and is paid
    for. admitted: its queue has admitted it, together with others.

    A cheaper provider behind it is as good as one behind a full provider: a budget that cannot pay
    here may be able to pay there.
    """
    denials: dict[str, BudgetDenial] = {}
    refusals: dict[QueueAsk, tuple[str, QueueRefusal]] = {}
    for where in slots.open(unit):
        provider = where.provider
        ask = _ask_of(desired, unit, provider)
        price = unit_price_of(desired, unit, provider, now_s)
        refusal = None if admitted else _find_refusal(desired.turn, ask)
        if refusal is not None:
            denied = desired.allowance.denial(price, provider)
            if denied is None or refusal.reason not in IN_LINE:
                refusals[ask] = provider, refusal
            else:
                # It does not wait in line for a run that it could not pay: others would be
                # preempted for it, and start again in its slot.
                denials[provider] = denied
            continue

        paid = desired.allowance.take(price, provider)
        if isinstance(paid, BudgetDenial):
            denials[provider] = paid
            continue
        queue_full_at = [name for name, _ in refusals.values()]
        passed = _describe_passed(desired, denials, queue_full_at)
        judged = _with_money(slots.judged(unit.template_hash), where, passed)
        judged = _move_to_end(judged, where, slots.find_left_provider(unit))
        return PaidStart(where, paid, judged, _take_quota(desired.turn, ask))

    full = slots.full(unit.template_hash)
    if refusals:
        reasons = {ask: refusal for ask, (_, refusal) in refusals.items()}
        return _join_line(reasons, denials, full)
    return _deny_start(desired, unit, denials, full, now_s)


def _describe_passed(
    desired: DesiredObject,
    denials: Mapping[str, BudgetDenial],
    queue_full_at: Sequence[str],
) -> dict[str, str]:
    """Returns why the better providers are passed, by provider."""
    why = {name: f"{it.owner} cannot pay for one more there" for name, it in denials.items()}
    why |= {name: f"{_name_queue(desired)} has no room there" for name in queue_full_at}
    return why


def _join_line(
    refusals: Mapping[QueueAsk, QueueRefusal],
    denials: Mapping[str, BudgetDenial],
    full: tuple[CandidateJudgement, ...],
) -> QueuedStart:
    """Returns the wait in its queue, with the first reason that lets it stand in line, if any."""
    reasons = [*refusals.values()]
    in_line = (it for it in reasons if it.reason in IN_LINE)
    unpaid = None
    if denials:
        unpaid = UnpaidStart(_merge_denials([*denials.values()], open_elsewhere=True), ())
    return QueuedStart(next(in_line, reasons[0]), tuple(refusals), full, unpaid)


def _deny_start(
    desired: DesiredObject,
    unit: Unit,
    denials: Mapping[str, BudgetDenial],
    full: tuple[CandidateJudgement, ...],
    now_s: float,
) -> UnpaidStart:
    """Returns the denials of all providers together; of full ones, as if they had capacity."""
    payable: list[CandidateJudgement] = []
    every = [*denials.values()]
    for candidate in full:
        price = unit_price_of(desired, unit, candidate.provider, now_s)
        denied = desired.allowance.denial(price, candidate.provider)
        if denied is None:
            payable.append(candidate)
        else:
            every.append(denied)
    return UnpaidStart(_merge_denials(every, open_elsewhere=bool(payable)), tuple(payable))


def paid_again(
    provider: str,
    desired: DesiredObject,
    unit: Unit,
    now_s: float,
) -> ReservedCost | UnpaidStart:
    """Sets aside the same for one more run in an existing sandbox."""
    paid = desired.allowance.take(unit_price_of(desired, unit, provider, now_s), provider)
    if isinstance(paid, ReservedCost):
        return paid
    return UnpaidStart(paid, ())


def unit_price_of(
    desired: DesiredObject,
    unit: Unit,
    provider: str,
    now_s: float,
) -> UnitPrice:
    """Returns the price of another run of the unit on that provider."""
    offer = desired.offers.get(unit.template_hash, {}).get(provider)
    terms = desired.terms.get(provider, SandboxTerms())
    ends_at = ends_at_s(desired, now_s)
    return UnitPrice(
        None if offer is None else offer.usd_per_s,
        lasts_s(
            timeout_s=desired.controller.template(unit.index).timeout_seconds,
            left_s=None if ends_at is None else ends_at - now_s,
            lifetime_s=terms.lifetime_s,
            after_s=desired.controller.policy.grace_s + terms.quantum_s,
        ),
    )


def _merge_denials(denials: Sequence[BudgetDenial], *, open_elsewhere: bool) -> BudgetDenial:
    """Combines denials: the result is for good only if the denial is so at every provider."""
    final = not open_elsewhere and all(it.for_good or it.reason == TOO_SMALL for it in denials)
    if final:
        return next((it for it in denials if it.for_good), denials[0])
    # A denial that freed money can lift is more useful than a permanent one.
    first = next((it for it in denials if it.reason != TOO_SMALL), denials[0])
    return replace(first, for_good=False, cancel=False)


def _with_money(
    judged: tuple[CandidateJudgement, ...],
    where: CandidateJudgement,
    others: dict[str, str],
) -> tuple[CandidateJudgement, ...]:
    """Returns the judgements with the candidate that is paid for as the choice. others: why it
    does not start on a better provider, by its name. Without amounts: thousands of runs share
    the sentence, and the store keeps it once.
    """
    if not others:
        return judged
    fields = {**others, where.provider: "the first that is paid for"}
    return tuple(replace(it, won=it is where, why=fields.get(it.provider, it.why)) for it in judged)


def _move_to_end(
    judged: tuple[CandidateJudgement, ...],
    where: CandidateJudgement,
    left: str,
) -> tuple[CandidateJudgement, ...]:
    """Returns the judgements with the provider that the unit left as the last choice. left: the
    provider that comes last for it; empty without one.
    """
    at = next((it for it in judged if it.provider == left), None)
    if at is None or not at.won or where.provider == left:
        return judged
    fields = {left: "its last start was moved from there", where.provider: "next with room"}
    return tuple(replace(it, won=it is where, why=fields.get(it.provider, it.why)) for it in judged)


# -- queues --------------------------------------------------------------------------------------
def gives_way(
    desired: DesiredObject,
    queued: str,
    provider: str,
    usd_per_s: float | None,
) -> str:
    """Returns why a sandbox with this usage of a queue should end instead of taking another task,
    as a sentence; empty where it stays. queued: empty = it was made when its object was in no
    queue.
    """
    turn = desired.turn
    if turn is None:
        return ""
    name, takes = parse_usage(queued) if queued else ("", None)
    if name != turn.me.queue:
        # It is not counted in this queue, and would stay so for as long as there are tasks.
        return f"its sandbox ends: it is from before its object came to queue/{turn.me.queue}"
    if turn.gives_way(QueueAsk(provider, takes, usd_per_s)):
        return "its sandbox ends: others of its queue come first"
    return ""


def _ask_of(
    desired: DesiredObject,
    unit: Unit,
    provider: str,
) -> QueueAsk:
    offer = desired.offers.get(unit.template_hash, {}).get(provider, ProviderOffer())
    return QueueAsk(provider, offer.takes, offer.usd_per_s)


def _find_refusal(turn: QueueAdmission | None, ask: QueueAsk) -> QueueRefusal | None:
    if turn is None:
        return None
    return turn.refusal(ask)


def _take_quota(turn: QueueAdmission | None, ask: QueueAsk) -> str:
    """Adds the started run's usage to the queue; returns the text stored beside the run."""
    if turn is None or ask.takes is None:
        return ""
    turn.take(ask)
    return text_of(turn.me.queue, ask.takes)


def _name_queue(desired: DesiredObject) -> str:
    if desired.turn is not None:
        return f"queue/{desired.turn.me.queue}"
    return ""


def explain_capacity(
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


def explain_denial(
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


class StuckCause(StrEnum):
    """The missing thing that only a user can provide."""

    MISSING = "missing"  # an object, a variable or a key that is not there
    CAPACITY = "capacity"  # no machine of the kind
    ACCOUNT = "account"  # the service's reason about the account, which may be an odd reply
    MONEY = "money"
    PLACE = "place"


_OF_WAITS = {
    "SecretMissing": StuckCause.MISSING,
    "FunctionMissing": StuckCause.MISSING,
    "EndpointMissing": StuckCause.MISSING,
    "KeyMissing": StuckCause.MISSING,
    "AccountNotReady": StuckCause.MISSING,
    "DependencyMissing": StuckCause.MISSING,
    "NoProvider": StuckCause.MISSING,
    "QueueMissing": StuckCause.MISSING,
    "QueueSuspended": StuckCause.PLACE,
    "QueueTooSmall": StuckCause.PLACE,
    "NoSuchMachine": StuckCause.CAPACITY,
    "NoPlace": StuckCause.PLACE,
    "KeyRefused": StuckCause.ACCOUNT,
    "HostKeyUnknown": StuckCause.ACCOUNT,
    "HostKeyChanged": StuckCause.ACCOUNT,
    "NoPython": StuckCause.ACCOUNT,
    "WrongConfig": StuckCause.ACCOUNT,
    "AccessDenied": StuckCause.ACCOUNT,
    "SpendLimit": StuckCause.ACCOUNT,
    "Suspended": StuckCause.ACCOUNT,
}
_OF_MONEY = frozenset({TOO_SMALL, "PriceUnknown", "NoTimeLimit"})


def explain_stuck(
    plan: Plan,
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> dict[str, str] | None:
    """Returns `{lack, reason, message, hint}`; None while the object progresses, or will by
    itself.
    """
    if plan.phase is not Phase.PENDING or plan.active:
        return None
    if history.waiting.next_due_at_s(now_s) is not None:
        return None
    if spills_at_s(desired, history, now_s) is not None:
        return None
    if history.live:
        waits = [desired.waits.get(name) for name in history.live]
        first = waits[0]
        if first is None or any(it is None or it.reason not in _OF_WAITS for it in waits):
            return None
        return _build_lack(_OF_WAITS[first.reason], first)
    denied = plan.denied
    if denied is not None:
        # Money that other objects hold is freed when they end.
        ended = denied.for_good or denied.reason in _OF_MONEY
        if ended:
            return _build_lack(StuckCause.MONEY, denied)
        return None
    if plan.reason not in _OF_WAITS:
        return None
    return _build_lack(_OF_WAITS[plan.reason], plan)


def _build_lack(lack: StuckCause, why: StartWait | BudgetDenial | Plan) -> dict[str, str]:
    return {"lack": lack.value, "reason": why.reason, "message": why.message, "hint": why.hint}
