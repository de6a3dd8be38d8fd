"""Chooses where a unit may start: every candidate of a placement is judged, with a sentence why it
won or lost.

Pure. reconcile.py starts units by these judgements, and a plan shows them before any start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.controllers.budget import format_usd
from fleetctl.controllers.queues.queue_state import QueueUsage

HOUR_S = 3600
USD_PER_S_SLACK = 1e-12


# Reasons of providers without capacity, in the words of specs' spillOver.
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
    """One provider that the spec names. max_usd_per_s: above it the provider is excluded; None = no
    limit.
    """

    provider: str
    max_usd_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpillRule:
    """The conditions for moving a waiting start to another provider. on: words of specs'
    spillOver.
    """

    after_s: float = 30.0
    on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Placement:
    """cheapest: the lowest known price goes first, and equals in order; else the order decides."""

    candidates: tuple[Candidate, ...]
    cheapest: bool = False
    spill: SpillRule = field(default_factory=SpillRule)


@dataclass(frozen=True, slots=True)
class ProviderOffer:
    """The offer of a provider for a template, at any load."""

    usd_per_s: float | None = None  # unset: the price is not known; never free
    lacks: str = ""  # a sentence why this work can never run there, or empty
    takes: QueueUsage | None = None  # unset: not known, such as for a Function that does not exist


@dataclass(frozen=True, slots=True)
class ProviderCapacity:
    """The remaining capacity of a provider. `full` is the reason, where `free` is spent."""

    free: int | None = None  # new sandboxes; unset = no limit
    full: str = ""
    over: int = 0  # sandboxes above its limit, after the limit was lowered
    spare_usd_per_s: float | None = None  # by its breaker; unset = no breaker
    breaker: str = ""  # a description of the breaker, for users
    until_s: float | None = None  # when there may be more, by the clock alone


@dataclass(frozen=True, slots=True)
class CandidateJudgement:
    """One candidate. fits: work may run there, now or once there is capacity. won: it starts there.

    why: a sentence for users, also of the winner. free: as in ProviderCapacity.
    """

    provider: str
    fits: bool
    won: bool
    why: str
    usd_per_s: float | None = None
    free: int | None = None


def judge_candidates(
    placement: Placement,
    offers: Mapping[str, ProviderOffer],
    capacities: Mapping[str, ProviderCapacity] | None = None,
) -> tuple[CandidateJudgement, ...]:
    """Returns every candidate, best first; candidates that can never fit come last, in their order.

    offers: by provider, for existing providers. free capacities: None or not in it = as much as
    wanted. At most one has won; no candidate wins while all are full.
    """
    room = capacities or {}
    fitting: list[tuple[Candidate, ProviderOffer]] = []
    losers: list[CandidateJudgement] = []
    for candidate in placement.candidates:
        offer = offers.get(candidate.provider)
        why = _explain_unfit(candidate, offer)
        if offer is None or why:
            price = offer.usd_per_s if offer else None
            losers.append(
                CandidateJudgement(
                    candidate.provider,
                    False,
                    False,
                    why,
                    price,
                )
            )
        else:
            fitting.append((candidate, offer))
    if placement.cheapest:
        fitting.sort(key=lambda it: _price_rank(it[1]))
    return (*_rank_candidates(placement, fitting, room), *losers)


def explain_full(usd_per_s: float | None, capacity: ProviderCapacity) -> str:
    """Returns why not one sandbox of this price can start there now; empty when one can."""
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
        return f"{format_per_hour(usd_per_s)} more would exceed {capacity.breaker}"
    return ""


def spill_reason(reason: str, *, account: bool = False) -> str | None:
    """Maps a provider's reason to a word of spillOver; None for a reason that is not a lack of
    capacity, such as an image that is still being built.

    account: the reason concerned the account, in any word: it is served no sandbox there now.
    """
    return _SPILL_REASONS.get(reason) or ("ProviderDegraded" if account else None)


def format_per_hour(usd_per_s: float | None) -> str:
    """Formats a price for users."""
    if usd_per_s is None:
        return "an unknown price"
    return f"{format_usd(usd_per_s * HOUR_S)}/h"


def _explain_unfit(candidate: Candidate, offer: ProviderOffer | None) -> str:
    """Returns why the candidate can never run it; empty when it can. First match wins."""
    if offer is None:
        return f"there is no provider `{candidate.provider}`"
    if offer.lacks:
        return offer.lacks
    most = candidate.max_usd_per_s
    if most is not None and offer.usd_per_s is None:
        return f"its price is not known, and its maxPricePerHour is {format_per_hour(most)}"
    if most is not None and offer.usd_per_s is not None and offer.usd_per_s > most:
        price = format_per_hour(offer.usd_per_s)
        return f"{price} is above its maxPricePerHour of {format_per_hour(most)}"
    return ""


def _price_rank(offer: ProviderOffer) -> float:
    if offer.usd_per_s is None:
        return float("inf")
    return offer.usd_per_s


def _rank_candidates(
    placement: Placement,
    fitting: list[tuple[Candidate, ProviderOffer]],
    room: Mapping[str, ProviderCapacity],
) -> list[CandidateJudgement]:
    """Judges the fitting candidates: the first with capacity has won; candidates before it are
    full, candidates behind it wait.
    """
    ranked: list[CandidateJudgement] = []
    winner: CandidateJudgement | None = None
    for candidate, offer in fitting:
        name = candidate.provider
        price = offer.usd_per_s
        capacity = room.get(name, ProviderCapacity())
        full = explain_full(price, capacity)
        if full:
            why = full
        elif winner is None:
            why = _explain_win(
                placement, price, only=len(placement.candidates) == 1, first=not ranked
            )
        else:
            why = _explain_loss(placement, winner, price)
        won = winner is None and not full
        judged = CandidateJudgement(
            name,
            True,
            won,
            why,
            price,
            capacity.free,
        )
        winner = judged if won else winner
        ranked.append(judged)
    return ranked


def _explain_win(
    placement: Placement,
    usd_per_s: float | None,
    *,
    only: bool,
    first: bool,
) -> str:
    if only:
        return "the only candidate"
    if not placement.cheapest:
        if first:
            return "first in order"
        return "first in order with room"
    if usd_per_s is None:
        return "no cheaper one is known"
    return f"cheapest{'' if first else ' with room'} at {format_per_hour(usd_per_s)}"


def _explain_loss(
    placement: Placement,
    winner: CandidateJudgement,
    usd_per_s: float | None,
) -> str:
    if not placement.cheapest:
        return f"comes after `{winner.provider}`"
    if usd_per_s == winner.usd_per_s:
        return f"not cheaper than `{winner.provider}`, and comes after it"
    return f"{format_per_hour(usd_per_s)} is not cheaper than `{winner.provider}`"
