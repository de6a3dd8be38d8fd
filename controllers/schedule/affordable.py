"""Chooses the best provider for a new sandbox with capacity that the object's queue and the budgets
allow. Pure; called by starts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.controllers.money.budget import (
    TOO_SMALL,
    BudgetDenial,
    ReservedCost,
    SandboxTerms,
    UnitPrice,
    lasts_s,
)
from fleetctl.controllers.planning.kind_controller import Unit
from fleetctl.controllers.planning.placement import CandidateJudgement, ProviderOffer
from fleetctl.controllers.queues.queue_admission import IN_LINE, QueueAdmission, QueueRefusal
from fleetctl.controllers.queues.queue_state import Asks, QueueAsk
from fleetctl.controllers.queues.queue_usage import parse_usage, text_of
from fleetctl.controllers.schedule.capacity import PassSlots
from fleetctl.controllers.schedule.desired import DesiredObject, ends_at_s


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
) -> PaidStart | UnpaidStart | QueuedStart:
    """Sets aside the worst case of a new run, at the best provider that has capacity and is paid
    for.

    A cheaper provider behind it is as good as one behind a full provider: a budget that cannot pay
    here may be able to pay there.
    """
    denials: dict[str, BudgetDenial] = {}
    refusals: dict[QueueAsk, tuple[str, QueueRefusal]] = {}
    for where in slots.open(unit):
        ask = _ask_of(desired, unit, where.provider)
        price = unit_price_of(desired, unit, where.provider, now_s)
        refusal = _find_refusal(desired.turn, ask)
        if refusal is not None:
            denied = desired.allowance.denial(price, where.provider)
            if denied is None or refusal.reason not in IN_LINE:
                refusals[ask] = where.provider, refusal
            else:
                # It does not wait in line for a run that it could not pay: others would be
                # preempted for it, and start again in its slot.
                denials[where.provider] = denied
            continue
        paid = desired.allowance.take(price, where.provider)
        if isinstance(paid, ReservedCost):
            others = {
                name: f"{it.owner} cannot pay for one more there" for name, it in denials.items()
            }
            others |= {
                name: f"{_name_queue(desired)} has no room there" for name, _ in refusals.values()
            }
            judged = _with_money(slots.judged(unit.template_hash), where, others)
            judged = _moved_away(judged, where, slots.moved_from(unit))
            return PaidStart(where, paid, judged, _take_quota(desired.turn, ask))
        denials[where.provider] = paid
    full = slots.full(unit.template_hash)
    if refusals:
        why = [it for _, it in refusals.values()]
        first = next((it for it in why if it.reason in IN_LINE), why[0])
        broke = (
            UnpaidStart(_merge_denials([*denials.values()], open_elsewhere=True), ())
            if denials
            else None
        )
        return QueuedStart(first, tuple(refusals), full, broke)
    later = [
        desired.allowance.denial(unit_price_of(desired, unit, it.provider, now_s), it.provider)
        for it in full
    ]
    payable = tuple(it for it, denied in zip(full, later, strict=True) if denied is None)
    every = [*denials.values(), *(it for it in later if it is not None)]
    return UnpaidStart(_merge_denials(every, open_elsewhere=bool(payable)), payable)


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
    """others: why it does not start on a better provider, by its name. Without amounts: thousands
    of runs share the sentence, and the store keeps it once.
    """
    if not others:
        return judged
    fields = {**others, where.provider: "the first that is paid for"}
    return tuple(replace(it, won=it is where, why=fields.get(it.provider, it.why)) for it in judged)


def _moved_away(
    judged: tuple[CandidateJudgement, ...],
    where: CandidateJudgement,
    left: str,
) -> tuple[CandidateJudgement, ...]:
    """left: the provider that comes last for it; empty without one."""
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
