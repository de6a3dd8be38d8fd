"""From durations to money: what is known, what is bounded, and what nobody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.apply.cost.estimate import (
    FREE,
    UNKNOWN,
    Cost,
    estimate_cost,
    estimate_duration,
    share_units,
    whole_s,
)


def past(*seconds: float) -> object:
    return estimate_duration(
        seconds, basis="from the past", timeout_s=None, attempts=1, unit="task"
    )


def limited(timeout_s: float | None, attempts: int = 1) -> object:
    return estimate_duration((), basis="", timeout_s=timeout_s, attempts=attempts, unit="task")


def test_past_work_gives_a_figure_with_its_range() -> None:
    lasts = estimate_duration(
        [10.0, 20.0, 30.0], basis="from 3 past tasks", timeout_s=99, attempts=1, unit="task"
    )
    assert (lasts.low_s, lasts.middle_s, lasts.high_s) == (12.0, 20.0, 28.0)
    assert estimate_cost(5, lasts, 0.5) == Cost(30.0, 50.0, 70.0)


def test_without_a_past_the_limits_bound_it_with_every_attempt() -> None:
    lasts = limited(120, attempts=3)
    assert lasts.basis == "no past tasks; timeoutSeconds 120, 3 attempts each"
    assert estimate_cost(2, lasts, 0.01) == Cost(0.0, None, 7.2, at_most=True)


def test_the_bound_of_an_attempt_has_the_time_to_end_it() -> None:
    lasts = estimate_duration((), basis="", timeout_s=2.0, after_s=10.0, attempts=2, unit="task")
    assert lasts.basis == "no past tasks; timeoutSeconds 2 and 10 s to end, 2 attempts each"
    assert estimate_cost(3, lasts, 1.0).high == 72.0


def test_without_a_past_and_a_limit_nothing_bounds_it() -> None:
    assert limited(None).basis == "no past tasks and no timeoutSeconds"
    assert estimate_cost(2, limited(None), 0.01) == Cost(0.0, None, None)


def test_an_unknown_price_is_never_nothing_and_a_free_one_always() -> None:
    assert estimate_cost(2, past(1.0), None) == UNKNOWN
    assert estimate_cost(2, limited(None), 0.0) == FREE
    assert estimate_cost(0, limited(None), None) == FREE
    assert estimate_cost(None, past(1.0), 0.1) == UNKNOWN


def test_a_sum_with_something_unknown_is_unknown_and_keeps_its_least() -> None:
    total = Cost(1.0, 2.0, 3.0) + UNKNOWN
    assert (total.low, total.expected, total.high) == (1.0, None, None)


@pytest.mark.parametrize(
    ("units", "slots", "shares"),
    [
        (18, [12, 4], [14, 4]),
        (10, [12, 4], [10, 0]),
        (14, [12, 4], [12, 2]),
        (7, [0, 4], [0, 7]),
        (3, [0, 0], [0, 0]),
    ],
)
def test_the_best_place_fills_first_and_the_rest_follows_in_proportion(
    units: int, slots: list[int], shares: list[int]
) -> None:
    assert share_units(units, slots) == shares


@given(st.integers(0, 10_000), st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_every_unit_has_one_place_where_there_is_any(units: int, slots: list[int]) -> None:
    shares = share_units(units, slots)
    assert sum(shares) == (units if sum(slots) else 0)
    assert all(room or not share for room, share in zip(slots, shares, strict=True))


def test_time_goes_wave_by_wave() -> None:
    assert whole_s(10, 4, past(30.0)) == 90.0
    assert whole_s(10, 4, limited(60)) == 180.0
    assert whole_s(10, 0, past(30.0)) is None
    assert whole_s(None, 4, past(30.0)) is None
