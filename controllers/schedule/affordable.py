"""Where a new sandbox is paid for: the best place with room that the object's queue and the budgets
allow. Pure; called by starts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.controllers.money.budget import TOO_SMALL, Denied, Held, Terms, UnitPrice, lasts_s
from fleetctl.controllers.planning.kind import Unit
from fleetctl.controllers.planning.placement import Judgement, Offer
from fleetctl.controllers.queues.lines import Ask, Asks
from fleetctl.controllers.queues.takes import read, text_of
from fleetctl.controllers.queues.turn import IN_LINE, Refusal, Turn
from fleetctl.controllers.schedule.capacity import Slots
from fleetctl.controllers.schedule.desired import Desired, ends_at_s


@dataclass(frozen=True, slots=True)
class Paid:
    """The place, what is set aside, and how every candidate was judged with the money in mind."""

    where: Judgement
    held: Held
    judged: tuple[Judgement, ...]
    queued: str = ""  # what it takes of its queue


@dataclass(frozen=True, slots=True)
class Unpaid:
    """full: places that would be paid for, and have no room now."""

    denied: Denied
    full: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True)
class Queued:
    """Its queue lets nothing more of it start. asks: at each place with room. full: places without.
    unpaid: where the queue would let it start, and no budget does.
    """

    refusal: Refusal
    asks: Asks
    full: tuple[Judgement, ...] = ()
    unpaid: Unpaid | None = None


def paid_place(slots: Slots, desired: Desired, unit: Unit, now_s: float) -> Paid | Unpaid | Queued:
    """Set aside the worst case of one new run, at the best place that has room and is paid for.

    A cheaper place behind it is as good as one behind a place that is full: what one budget cannot
    pay here, it may pay there.
    """
    denials: dict[str, Denied] = {}
    refusals: dict[Ask, tuple[str, Refusal]] = {}
    for where in slots.open(unit.template_hash):
        ask = _ask_of(desired, unit, where.provider)
        price = unit_price_of(desired, unit, where.provider, now_s)
        refusal = _refusal(desired.turn, ask)
        if refusal is not None:
            denied = desired.allowance.denial(price, where.provider)
            if denied is None or refusal.reason not in IN_LINE:
                refusals[ask] = where.provider, refusal
            else:
                # It does not stand in line for what it could not pay: others would make room for
                # it, and start again in that.
                denials[where.provider] = denied
            continue
        paid = desired.allowance.take(price, where.provider)
        if isinstance(paid, Held):
            others = {
                name: f"{it.owner} cannot pay for one more there" for name, it in denials.items()
            }
            others |= {
                name: f"{_queue(desired)} has no room there" for name, _ in refusals.values()
            }
            judged = _with_money(slots.judged(unit.template_hash), where, others)
            return Paid(where, paid, judged, _taken(desired.turn, ask))
        denials[where.provider] = paid
    full = slots.full(unit.template_hash)
    if refusals:
        why = [it for _, it in refusals.values()]
        first = next((it for it in why if it.reason in IN_LINE), why[0])
        broke = Unpaid(_whole([*denials.values()], open_elsewhere=True), ()) if denials else None
        return Queued(first, tuple(refusals), full, broke)
    later = [
        desired.allowance.denial(unit_price_of(desired, unit, it.provider, now_s), it.provider)
        for it in full
    ]
    payable = tuple(it for it, denied in zip(full, later, strict=True) if denied is None)
    every = [*denials.values(), *(it for it in later if it is not None)]
    return Unpaid(_whole(every, open_elsewhere=bool(payable)), payable)


def paid_again(provider: str, desired: Desired, unit: Unit, now_s: float) -> Held | Unpaid:
    """The same for one more run in a sandbox that is there."""
    paid = desired.allowance.take(unit_price_of(desired, unit, provider, now_s), provider)
    return paid if isinstance(paid, Held) else Unpaid(paid, ())


def unit_price_of(desired: Desired, unit: Unit, provider: str, now_s: float) -> UnitPrice:
    """What one more run of the unit would cost there."""
    offer = desired.offers.get(unit.template_hash, {}).get(provider)
    terms, ends_at = desired.terms.get(provider, Terms()), ends_at_s(desired, now_s)
    return UnitPrice(
        None if offer is None else offer.usd_per_s,
        lasts_s(
            timeout_s=desired.controller.template(unit.index).timeout_seconds,
            left_s=None if ends_at is None else ends_at - now_s,
            lifetime_s=terms.lifetime_s,
            after_s=desired.controller.policy.grace_s + terms.quantum_s,
        ),
    )


def _whole(denials: Sequence[Denied], *, open_elsewhere: bool) -> Denied:
    """What all of them come to: it is for good only where it is so at every place."""
    final = not open_elsewhere and all(it.for_good or it.reason == TOO_SMALL for it in denials)
    if final:
        return next((it for it in denials if it.for_good), denials[0])
    # What money that comes free can mend says more than what it cannot.
    first = next((it for it in denials if it.reason != TOO_SMALL), denials[0])
    return replace(first, for_good=False, cancel=False)


def _with_money(
    judged: tuple[Judgement, ...], where: Judgement, others: dict[str, str]
) -> tuple[Judgement, ...]:
    """others: why not at a better place, by its name. Without amounts: thousands of runs share the
    sentence, and the store keeps it once.
    """
    if not others:
        return judged
    fields = {**others, where.provider: "the first that is paid for"}
    return tuple(replace(it, won=it is where, why=fields.get(it.provider, it.why)) for it in judged)


# -- queues --------------------------------------------------------------------------------------


def gives_way(desired: Desired, queued: str, provider: str, usd_per_s: float | None) -> str:
    """Why a sandbox that took this of a queue is to go rather than take another task, as a
    sentence; empty where it stays. queued: empty = it was made when its object was in no queue.
    """
    turn = desired.turn
    if turn is None:
        return ""
    name, takes = read(queued) if queued else ("", None)
    if name != turn.me.queue:
        # It counts nothing in this queue, and would go on so for as long as there are tasks.
        return f"its sandbox ends: it is from before its object came to queue/{turn.me.queue}"
    if turn.gives_way(Ask(provider, takes, usd_per_s)):
        return "its sandbox ends: others of its queue come first"
    return ""


def _ask_of(desired: Desired, unit: Unit, provider: str) -> Ask:
    offer = desired.offers.get(unit.template_hash, {}).get(provider, Offer())
    return Ask(provider, offer.takes, offer.usd_per_s)


def _refusal(turn: Turn | None, ask: Ask) -> Refusal | None:
    return None if turn is None else turn.refusal(ask)


def _taken(turn: Turn | None, ask: Ask) -> str:
    """It starts; what is kept beside it."""
    if turn is None or ask.takes is None:
        return ""
    turn.take(ask)
    return text_of(turn.me.queue, ask.takes)


def _queue(desired: Desired) -> str:
    return f"queue/{desired.turn.me.queue}" if desired.turn is not None else ""
