"""Judging the candidates of a placement: who wins, who loses, and why."""

from __future__ import annotations

from fleetctl.controllers.planning.placement import (
    HOUR_S,
    Candidate,
    Placement,
    ProviderCapacity,
    ProviderOffer,
    judge_candidates,
)

ALL = (Candidate("daytona"), Candidate("modal"), Candidate("local"))
ORDERED = Placement(ALL)
CHEAPEST = Placement(ALL, cheapest=True)
OFFERS = {
    "daytona": ProviderOffer(0.5 / HOUR_S),
    "modal": ProviderOffer(0.4 / HOUR_S),
    "local": ProviderOffer(None),
}


def ranks(*args: object) -> list[str]:
    return [it.provider for it in judge_candidates(*args)]  # type: ignore[arg-type]


def whys(*args: object) -> dict[str, str]:
    return {it.provider: it.why for it in judge_candidates(*args)}  # type: ignore[arg-type]


def winners(*args: object) -> list[str]:
    return [it.provider for it in judge_candidates(*args) if it.won]  # type: ignore[arg-type]


def test_an_ordered_placement_fills_the_first_first() -> None:
    assert winners(ORDERED, OFFERS) == ["daytona"]
    assert whys(ORDERED, OFFERS) == {
        "daytona": "first in order",
        "modal": "comes after `daytona`",
        "local": "comes after `daytona`",
    }


def test_a_full_one_runs_over_to_the_next_and_says_why() -> None:
    full = {"daytona": ProviderCapacity(free=0, full="it holds 5 of 5 sandboxes")}
    assert winners(ORDERED, OFFERS, full) == ["modal"]
    assert whys(ORDERED, OFFERS, full)["daytona"] == "it holds 5 of 5 sandboxes"
    assert whys(ORDERED, OFFERS, full)["modal"] == "first in order with room"


def test_any_of_takes_the_cheapest_known_price_and_unknown_ones_last() -> None:
    assert ranks(CHEAPEST, OFFERS) == ["modal", "daytona", "local"]
    assert whys(CHEAPEST, OFFERS) == {
        "modal": "cheapest at $0.40/h",
        "daytona": "$0.50/h is not cheaper than `modal`",
        "local": "an unknown price is not cheaper than `modal`",
    }


def test_equal_prices_keep_their_order() -> None:
    same = {name: ProviderOffer(0.0) for name in OFFERS}
    assert ranks(CHEAPEST, same) == ["daytona", "modal", "local"]


def test_what_can_never_fit_loses_with_a_sentence() -> None:
    offers = {
        "modal": ProviderOffer(0.001, lacks="it has no GPU `B300`"),
        "local": ProviderOffer(0.001),
    }
    dear = Placement((*ALL[:2], Candidate("local", max_usd_per_s=1 / HOUR_S)))
    judged = judge_candidates(dear, offers)
    assert not any(it.fits or it.won for it in judged)
    assert [it.why for it in judged] == [
        "there is no provider `daytona`",
        "it has no GPU `B300`",
        "$3.60/h is above its maxPricePerHour of $1.00/h",
    ]


def test_an_unknown_price_is_never_below_a_greatest_one() -> None:
    (judged,) = judge_candidates(Placement((Candidate("local", max_usd_per_s=1.0),)), OFFERS)
    assert not judged.fits
    assert "not known" in judged.why


def test_a_breaker_lets_start_what_stays_below_it() -> None:
    spare = {
        "modal": ProviderCapacity(spare_usd_per_s=0.4 / HOUR_S, breaker="maxSpendPerHour $2/h")
    }
    only = Placement((Candidate("modal"),))
    assert winners(only, OFFERS, spare) == ["modal"]
    less = {"modal": ProviderCapacity(spare_usd_per_s=0.3 / HOUR_S, breaker="maxSpendPerHour $2/h")}
    assert winners(only, OFFERS, less) == []
    assert whys(only, OFFERS, less)["modal"] == "$0.40/h more would exceed maxSpendPerHour $2/h"


def test_an_unknown_price_does_not_start_under_a_breaker_and_says_why() -> None:
    spare = {"local": ProviderCapacity(spare_usd_per_s=1.0, breaker="maxSpendPerHour $2/h")}
    judged = judge_candidates(Placement((Candidate("local"),)), OFFERS, spare)[0]
    assert judged.fits and not judged.won
    assert "price is not known" in judged.why
