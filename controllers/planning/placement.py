"""Where a unit may start: every candidate of a placement is judged, and says in a sentence why it
won or lost.

Pure. reconcile.py starts units by these judgements, and a plan shows them before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.controllers.money.budget import usd
from fleetctl.controllers.queues.takes import Takes

HOUR_S = 3600
USD_PER_S_SLACK = 1e-12


# What providers say when they have no room, in the words of specs' spillOver.
_SPILL_REASONS = {
    "NoCapacity": "NoCapacity",
    "NoSuchMachine": "NoCapacity",
    "Queued": "NoCapacity",
    "Unschedulable": "NoCapacity",
    "Quota": "QuotaExceeded",
    "SpendLimit": "QuotaExceeded",
    "Suspended": "QuotaExceeded",
    "RateLimited": "RateLimited",
    "SandboxFailed": "ProviderDegraded",
    "SandboxStuck": "ProviderDegraded",
    "Unavailable": "ProviderDegraded",
    "Unreachable": "ProviderDegraded",
    "UnknownAnswer": "ProviderDegraded",
    "StartUnknown": "ProviderDegraded",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place that the spec names. max_usd_per_s: above it the place is none; None = no limit."""

    provider: str
    max_usd_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spill:
    """When a unit whose start waits is moved elsewhere. on: words of specs' spillOver."""

    after_s: float = 30.0
    on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Placement:
    """cheapest: the lowest known price goes first, and equals in order; else the order decides."""

    candidates: tuple[Candidate, ...]
    cheapest: bool = False
    spill: Spill = field(default_factory=Spill)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one provider is to one template, however full it is."""

    usd_per_s: float | None = None  # None: the price is not known; never free
    lacks: str = ""  # a sentence why this work can never run there, or empty
    takes: Takes | None = None  # None: not known, such as of a Function that is not there


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is left of one provider now. `full` says why, where `free` is spent."""

    free: int | None = None  # new sandboxes; None = no limit
    full: str = ""
    over: int = 0  # sandboxes above its limit, after the limit was lowered
    spare_usd_per_s: float | None = None  # by its breaker; None = no breaker
    breaker: str = ""  # what the breaker is, for people
    until_s: float | None = None  # when there may be more, by the clock alone


@dataclass(frozen=True, slots=True)
class Judgement:
    """One candidate. fits: work may run there, now or once there is room. won: it starts there.

    why: a sentence for people, also of the winner. free: as in Capacity.
    """

    provider: str
    fits: bool
    won: bool
    why: str
    usd_per_s: float | None = None
    free: int | None = None


def judge(
    placement: Placement,
    offers: Mapping[str, Offer],
    capacities: Mapping[str, Capacity] | None = None,
) -> tuple[Judgement, ...]:
    """Every candidate, best first; those that can never fit come last, in their order.

    offers: by provider, of those that there are. free capacities: None or not in it = as much as
    wanted. At most one has won; none when there is no room anywhere.
    """
    room = capacities or {}
    fitting: list[tuple[Candidate, Offer]] = []
    losers: list[Judgement] = []
    for candidate in placement.candidates:
        offer = offers.get(candidate.provider)
        why = _unfit(candidate, offer)
        if offer is None or why:
            price = offer.usd_per_s if offer else None
            losers.append(Judgement(candidate.provider, False, False, why, price))
        else:
            fitting.append((candidate, offer))
    if placement.cheapest:
        fitting.sort(key=lambda it: _price_rank(it[1]))
    return (*_ranked(placement, fitting, room), *losers)


def why_full(usd_per_s: float | None, capacity: Capacity) -> str:
    """Why not one sandbox of this price can start there now; empty when one can."""
    if capacity.free is not None and capacity.free <= 0:
        return capacity.full or "it holds as many sandboxes as it may"
    spare = capacity.spare_usd_per_s
    if spare is None:
        return ""
    if usd_per_s is None:
        return (
            f"its price is not known, and nothing of unknown price starts under {capacity.breaker}"
        )
    # A sum of many prices is off by a few last digits.
    if usd_per_s > spare + USD_PER_S_SLACK:
        return f"{per_hour(usd_per_s)} more would exceed {capacity.breaker}"
    return ""


def spill_reason(reason: str, *, account: bool = False) -> str | None:
    """Which of spillOver's words an answer of a provider is; None for one that tells of no lack,
    such as an image that is still being built.

    account: it told of the account, in whatever word: nothing of it is served there now.
    """
    return _SPILL_REASONS.get(reason) or ("ProviderDegraded" if account else None)


def per_hour(usd_per_s: float | None) -> str:
    """A price as people read it."""
    return "an unknown price" if usd_per_s is None else f"{usd(usd_per_s * HOUR_S)}/h"


def _unfit(candidate: Candidate, offer: Offer | None) -> str:
    """Why the candidate can never run it; empty when it can. First match wins."""
    if offer is None:
        return f"there is no provider `{candidate.provider}`"
    if offer.lacks:
        return offer.lacks
    most = candidate.max_usd_per_s
    if most is not None and offer.usd_per_s is None:
        return f"its price is not known, and its maxPricePerHour is {per_hour(most)}"
    if most is not None and offer.usd_per_s is not None and offer.usd_per_s > most:
        return f"{per_hour(offer.usd_per_s)} is above its maxPricePerHour of {per_hour(most)}"
    return ""


def _price_rank(offer: Offer) -> float:
    return float("inf") if offer.usd_per_s is None else offer.usd_per_s


def _ranked(
    placement: Placement,
    fitting: list[tuple[Candidate, Offer]],
    room: Mapping[str, Capacity],
) -> list[Judgement]:
    """The first with room has won; what stands before it is full, what stands behind waits."""
    ranked: list[Judgement] = []
    winner: Judgement | None = None
    for candidate, offer in fitting:
        name, price = candidate.provider, offer.usd_per_s
        capacity = room.get(name, Capacity())
        full = why_full(price, capacity)
        if full:
            why = full
        elif winner is None:
            why = _praise(placement, price, only=len(placement.candidates) == 1, first=not ranked)
        else:
            why = _behind(placement, winner, price)
        won = winner is None and not full
        judged = Judgement(name, True, won, why, price, capacity.free)
        winner = judged if won else winner
        ranked.append(judged)
    return ranked


def _praise(placement: Placement, usd_per_s: float | None, *, only: bool, first: bool) -> str:
    if only:
        return "the only candidate"
    if not placement.cheapest:
        return "first in order" if first else "first in order with room"
    if usd_per_s is None:
        return "no cheaper one is known"
    return f"cheapest{'' if first else ' with room'} at {per_hour(usd_per_s)}"


def _behind(placement: Placement, winner: Judgement, usd_per_s: float | None) -> str:
    if not placement.cheapest:
        return f"comes after `{winner.provider}`"
    if usd_per_s == winner.usd_per_s:
        return f"not cheaper than `{winner.provider}`, and comes after it"
    return f"{per_hour(usd_per_s)} is not cheaper than `{winner.provider}`"
