from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest

from fleetctl.controllers.budget import (
    Allowance,
    BudgetAccount,
    BudgetDenial,
    MoneyCap,
    OnExceeded,
    ReservedCost,
    UnitPrice,
    accrued_usd,
    charge_usd,
    lasts_s,
    matches_labels,
    period_of,
    reserved_usd,
    worst_case_usd,
)
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.placement import ProviderOffer
from fleetctl.controllers.planning.plan import Shortage
from fleetctl.controllers.reconcile import reconcile_object
from tests.unit.controllers.play import Play

HOUR_S = 3600.0
RUN = Run(
    "r", "u", 0, 1, RunState.RUNNING, "cloud", "r", "t", "{}", "p", 100.0,
    started_at_s=110.0, usd_per_s=0.5, usd=60.0,
)  # fmt: skip


def account(max_usd: float = 10.0, **changes: float) -> BudgetAccount:
    return BudgetAccount(MoneyCap("budget/team", "budget/team maxCost", max_usd), **changes)  # type: ignore[arg-type]


def take(
    *accounts: BudgetAccount, usd_per_s: float | None = 0.01, seconds: float = 300.0
) -> ReservedCost | BudgetDenial:
    return Allowance(accounts).take(UnitPrice(usd_per_s, seconds), "cloud")


def denied(it: ReservedCost | BudgetDenial) -> BudgetDenial:
    assert isinstance(it, BudgetDenial)
    return it


def test_starts_are_paid_for_until_the_cap_is_reserved() -> None:
    team = account(10.0)
    assert [isinstance(take(team), ReservedCost) for _ in range(5)] == [True] * 3 + [False] * 2
    assert team.reserved_usd == pytest.approx(9.0)


def test_a_start_must_fit_into_every_budget_and_takes_from_none_otherwise() -> None:
    wide, narrow = account(100.0), account(4.0, charged_usd=2.0)
    assert denied(take(wide, narrow)).reason == "BudgetExhausted"
    assert (wide.reserved_usd, narrow.reserved_usd) == (0.0, 0.0)


def test_a_denial_names_both_numbers_and_a_command_that_mends_it() -> None:
    said = denied(take(account(10.0, charged_usd=8.0)))
    assert said.message == "the next task may cost $3.00, budget/team has $2.00 of $10.00 left"
    assert said.hint == "fleetctl set budget/team maxCost=11"
    assert said.for_good


def test_what_live_runs_hold_is_waited_for_and_does_not_deny_for_good() -> None:
    said = denied(take(account(10.0, charged_usd=1.0, reserved_usd=8.0)))
    assert not said.for_good


@pytest.mark.parametrize(
    ("usd_per_s", "seconds", "reason"),
    [(None, 1.0, "PriceUnknown"), (0.01, inf, "NoTimeLimit"), (1.0, 11.0, "BudgetTooSmall")],
)
def test_what_can_never_be_paid_says_which_of_the_three_it_is(
    usd_per_s: float | None, seconds: float, reason: str
) -> None:
    said = denied(take(account(10.0), usd_per_s=usd_per_s, seconds=seconds))
    assert (said.reason, said.cancel) == (reason, False)


def test_without_a_budget_nothing_is_denied_and_a_known_worst_case_is_still_kept() -> None:
    assert take(usd_per_s=0.1, seconds=10.0) == ReservedCost(1.0)
    assert take(usd_per_s=None) == ReservedCost(None)
    assert take(seconds=inf) == ReservedCost(None)


def test_what_is_free_stays_free_however_long_it_runs() -> None:
    assert worst_case_usd(0.0, inf) == 0.0
    assert take(account(1.0), usd_per_s=0.0, seconds=inf) == ReservedCost(0.0)


def test_cancel_waits_for_live_runs_that_may_still_make_room() -> None:
    cap = MoneyCap("its budget", "job/x budget.maxCost", 10.0, OnExceeded.CANCEL)
    waits = take(BudgetAccount(cap, charged_usd=1.0, reserved_usd=9.0))
    over = take(BudgetAccount(cap, charged_usd=9.0))
    assert (denied(waits).cancel, denied(over).cancel) == (False, True)


def test_warn_lets_everything_start_and_remembers_that_it_went_over() -> None:
    team = BudgetAccount(MoneyCap("budget/team", "", 1.0, OnExceeded.WARN))
    assert take(team, usd_per_s=None) == ReservedCost(None)
    assert team.over[0] == "PriceUnknown"
    take(team)
    assert team.over == (
        "BudgetExceeded",
        "budget/team only warns: $3.00 of $1.00 is used or set aside",
    )


def test_runs_whose_price_nobody_knew_count_like_the_one_that_would_start() -> None:
    assert denied(take(account(10.0, unpriced_s=800.0))).for_good
    assert denied(take(account(10.0, unpriced_live=3))).reason == "BudgetExhausted"
    assert isinstance(take(account(10.0, unpriced_live=2)), ReservedCost)


def test_a_sandbox_lasts_as_long_as_its_nearest_limit_and_what_its_end_takes() -> None:
    most = lasts_s(timeout_s=60.0, left_s=20.0, lifetime_s=86_400.0, after_s=15.0)
    assert most == 35.0
    assert lasts_s(timeout_s=None, left_s=-5.0, lifetime_s=None, after_s=15.0) == 15.0
    assert lasts_s(timeout_s=None, left_s=None, lifetime_s=None, after_s=15.0) == inf


def test_a_live_run_never_holds_less_than_what_it_has_cost() -> None:
    assert reserved_usd(RUN, worst_usd=None, now_s=120.0) == 60.0
    assert reserved_usd(RUN, worst_usd=80.0, now_s=120.0) == 80.0  # a later deadline
    assert reserved_usd(RUN, worst_usd=None, now_s=310.0) == 100.0  # its stop is late
    assert reserved_usd(replace(RUN, usd=None), worst_usd=None, now_s=120.0) == inf
    assert reserved_usd(replace(RUN, usd_per_s=None), worst_usd=None, now_s=120.0) is None
    assert accrued_usd(RUN, 120.0) == 5.0


def test_a_charge_runs_from_when_the_sandbox_may_have_existed() -> None:
    over = replace(RUN, state=RunState.SUCCEEDED, ended_at_s=130.0)
    assert charge_usd(over, held_from_s=104.0, quantum_s=2.0) == pytest.approx(0.5 * (26 + 2))
    # Forgotten in a restart: since the record was made, at most what was reserved for it.
    assert charge_usd(over, held_from_s=None, quantum_s=0.0) == pytest.approx(15.0)
    small = replace(over, usd=12.0)
    assert charge_usd(small, held_from_s=None, quantum_s=0.0) == pytest.approx(12.0)
    assert charge_usd(replace(over, usd_per_s=None), held_from_s=None, quantum_s=0.0) is None


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("day", "2026-11-30", "2026-12-01"),
        ("week", "2026-11-30", "2026-12-07"),
        ("month", "2026-11-01", "2026-12-01"),
    ],
)
def test_periods_are_days_weeks_from_monday_and_months_in_utc(
    period: str, start: str, end: str
) -> None:
    now_s = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()
    found = [datetime.fromtimestamp(it or 0, UTC) for it in period_of(period, now_s)]
    assert [f"{it:%Y-%m-%d}" for it in found] == [start, end]
    assert period_of("total", now_s) == (0.0, None)


def test_an_empty_selector_selects_every_object() -> None:
    assert matches_labels({}, {}) and matches_labels({"team": "a"}, {"team": "a", "x": "y"})
    assert not matches_labels({"team": "a"}, {"team": "b"})


def test_a_warning_level_counts_what_is_used_and_not_what_is_reserved() -> None:
    cap = MoneyCap("budget/team", "", 10.0, warn_at=(50, 80))
    assert BudgetAccount(cap, reserved_usd=10.0).warned == 0
    assert BudgetAccount(cap, charged_usd=4.0, reserved_usd=6.0, accrued_usd=1.0).warned == 50
    assert BudgetAccount(cap, charged_usd=9.0).warned == 80


def test_an_object_waits_for_room_and_not_for_money_where_a_full_place_would_be_paid_for() -> None:
    play = Play(
        {
            "tasks": {"completions": 1},
            "placement": {"ordered": [{"provider": "dear"}, {"provider": "cheap"}]},
            "template": {"command": ["work"], "timeoutSeconds": 30},
        }
    )
    prices = {"dear": 1.0, "cheap": 0.001}
    digest = play.controller.template_hash

    desired = replace(
        play.desired(),
        providers=dict.fromkeys(prices, 4),
        offers={digest: {name: ProviderOffer(price) for name, price in prices.items()}},
        allowance=Allowance((account(0.5),)),
        shortages={"cheap": Shortage(0, play.now_s + 30.0, "it answered NoRoom")},
    )
    plan = reconcile_object(desired, play.history, play.now_s)
    assert (plan.reason, plan.actions) == ("Crowded", ())
    assert plan.message.startswith("provider `cheap`, which is paid for: it answered NoRoom; ")
    assert plan.wake_at_s == play.now_s + 30.0
    poor = replace(desired, allowance=Allowance((account(0.01),)))
    assert reconcile_object(poor, play.history, play.now_s).reason != "Crowded"
