"""Where a new sandbox is paid for: the best place with room that the budgets allow. Pure; called by
starts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.controllers.kind import Unit
from fleetctl.controllers.money.budget import TOO_SMALL, Denied, Held, Tariff, Terms, lasts_s
from fleetctl.controllers.placement import Judgement
from fleetctl.controllers.schedule.capacity import Seats
from fleetctl.controllers.wish import Wish, ends_at_s


@dataclass(frozen=True, slots=True)
class Paid:
    """The place, what is set aside, and how every candidate was judged with the money in mind."""

    where: Judgement
    held: Held
    judged: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True)
class Unpaid:
    """full: places that would be paid for, and have no room now."""

    denied: Denied
    full: tuple[Judgement, ...]


def paid_place(seats: Seats, wish: Wish, unit: Unit, now_s: float) -> Paid | Unpaid:
    """Set aside the worst case of one new run, at the best place that has room and is paid for.

    A cheaper place behind it is as good as one behind a place that is full: what one budget cannot
    pay here, it may pay there.
    """
    denials: dict[str, Denied] = {}
    for where in seats.open(unit.template_hash):
        paid = wish.allowance.take(tariff_of(wish, unit, where.provider, now_s), where.provider)
        if isinstance(paid, Held):
            return Paid(where, paid, _with_money(seats.judged(unit.template_hash), where, denials))
        denials[where.provider] = paid
    full = seats.full(unit.template_hash)
    later = [
        wish.allowance.denial(tariff_of(wish, unit, it.provider, now_s), it.provider) for it in full
    ]
    payable = tuple(it for it, denied in zip(full, later, strict=True) if denied is None)
    every = [*denials.values(), *(it for it in later if it is not None)]
    return Unpaid(_whole(every, open_elsewhere=bool(payable)), payable)


def paid_again(provider: str, wish: Wish, unit: Unit, now_s: float) -> Held | Unpaid:
    """The same for one more run in a sandbox that is there."""
    paid = wish.allowance.take(tariff_of(wish, unit, provider, now_s), provider)
    return paid if isinstance(paid, Held) else Unpaid(paid, ())


def tariff_of(wish: Wish, unit: Unit, provider: str, now_s: float) -> Tariff:
    """What one more run of the unit would cost there."""
    offer = wish.offers.get(unit.template_hash, {}).get(provider)
    terms, ends_at = wish.terms.get(provider, Terms()), ends_at_s(wish, now_s)
    return Tariff(
        None if offer is None else offer.usd_per_s,
        lasts_s(
            timeout_s=wish.controller.template(unit.index).timeout_seconds,
            left_s=None if ends_at is None else ends_at - now_s,
            lifetime_s=terms.lifetime_s,
            after_s=wish.controller.policy.grace_s + terms.quantum_s,
        ),
    )


def _whole(denials: Sequence[Denied], *, open_elsewhere: bool) -> Denied:
    """What all of them come to: it is for good only where it is so at every place."""
    final = not open_elsewhere and all(it.for_good or it.reason == TOO_SMALL for it in denials)
    if final:
        return next((it for it in denials if it.for_good), denials[0])
    # What money that comes free can mend says more than what it cannot.
    told = next((it for it in denials if it.reason != TOO_SMALL), denials[0])
    return replace(told, for_good=False, cancel=False)


def _with_money(
    judged: tuple[Judgement, ...], where: Judgement, denials: dict[str, Denied]
) -> tuple[Judgement, ...]:
    if not denials:
        return judged
    # Without amounts: thousands of runs share the sentence, and the store keeps it once.
    told = {name: f"{it.owner} cannot pay for one more there" for name, it in denials.items()}
    told[where.provider] = "the first that is paid for"
    return tuple(replace(it, won=it is where, why=told.get(it.provider, it.why)) for it in judged)
