"""Containers that a Function keeps warm cost money while nothing runs: budgets count them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.engine.fake_world import Fleet

# $0.02 a second together, and so $6 for the 300 s that are set aside, and $1.20 for the last 60 s.
WARM = {"provider": "local", "minContainers": 2, "scaledownSeconds": 60}


def fleet() -> Fleet:
    made = Fleet()
    made.local.price = 0.01
    return made


def team(world: Fleet) -> dict[str, Any]:
    return world.status("team")


async def budget(world: Fleet, max_usd: float) -> None:
    await world.apply("Budget", "team", {"maxCost": max_usd, "period": "total", "selector": {}})


async def test_what_stays_warm_is_set_aside_and_charged_as_time_goes_by() -> None:
    async with fleet() as world:
        await budget(world, 100)
        await world.apply("Function", "embedder", WARM)
        assert (team(world)["used"], team(world)["reserved"]) == (0.0, 7.2)
        await world.later(300.0)
        assert team(world)["used"] == pytest.approx(6.0)
        await world.later(600.0)
        assert team(world)["used"] == pytest.approx(18.0)


async def test_a_crash_forgets_none_of_it() -> None:
    async with fleet() as world:
        await budget(world, 100)
        await world.apply("Function", "embedder", WARM)
        world.clock.time_s += 1_000.0
        await world.crash()
        await world.later(1.0)
        held = team(world)["used"] + team(world)["reserved"]
        assert held >= 1_000.0 * 0.02
        await world.later(300.0)
        assert team(world)["used"] == pytest.approx(1_301.0 * 0.02, rel=0.01)


async def test_what_the_budget_cannot_pay_is_not_made_ready_until_it_can() -> None:
    async with fleet() as world:
        await budget(world, 5)
        await world.apply("Function", "embedder", WARM)
        status = world.status("embedder")
        assert (status["phase"], status["reason"]) == ("Pending", "BudgetTooSmall")
        assert "budget/team has $5.00 in all" in status["message"]
        assert world.local.functions == {}
        await budget(world, 50)
        assert world.status("embedder")["phase"] == "Ready"
        assert set(world.local.functions) == {"embedder"}


async def test_runs_do_not_get_the_money_that_warm_containers_need() -> None:
    async with fleet() as world:
        await budget(world, 8)
        await world.apply("Function", "embedder", WARM)
        template = {"python": "pass", "timeoutSeconds": 100, "terminationGracePeriodSeconds": 0}
        await world.apply("BatchJob", "job", {"template": template, "completions": 1})
        assert world.local.working() == []
        assert world.status("job")["reason"] == "BudgetExhausted"


async def test_an_unknown_price_of_what_stays_warm_is_never_nothing() -> None:
    async with fleet() as world:
        world.local.price = None
        await budget(world, 100)
        await world.apply("Function", "embedder", WARM)
        assert world.status("embedder")["reason"] == "PriceUnknown"


async def test_a_function_that_goes_or_changes_is_charged_to_the_last_second() -> None:
    async with fleet() as world:
        await budget(world, 100)
        await world.apply("Function", "embedder", WARM)
        world.clock.time_s += 100.0
        await world.apply("Function", "embedder", {**WARM, "minContainers": 0})
        assert (team(world)["used"], team(world)["reserved"]) == (pytest.approx(2.0), 0.0)
        assert "warm" not in json.loads(world.row("embedder").status)
        await world.apply("Function", "embedder", WARM)
        world.clock.time_s += 50.0
        await world.delete("Function", "embedder")
        assert (team(world)["used"], team(world)["reserved"]) == (pytest.approx(3.0), 0.0)


async def test_the_status_tells_what_all_of_it_cost_also_after_it_is_kept_warm_no_more() -> None:
    async with fleet() as world:
        await world.apply("Function", "embedder", WARM)
        began_s = world.clock.now_s()
        await world.later(300.0)
        cost = json.loads(world.row("embedder").status)["cost"]
        assert cost == {
            "from": began_s, "until": began_s + 300.0, "actual": 6.0, "seconds": 600.0,
            "provider": "local",
        }  # fmt: skip
        await world.crash()
        world.clock.time_s += 100.0
        await world.apply("Function", "embedder", {**WARM, "minContainers": 0})
        status = json.loads(world.row("embedder").status)
        assert "warm" not in status
        assert (status["cost"]["actual"], status["cost"]["seconds"]) == (8.0, 800.0)


async def test_seconds_without_a_known_price_are_told_apart() -> None:
    async with fleet() as world:
        world.local.price = None
        await world.apply("Function", "embedder", WARM)
        await world.later(300.0)
        cost = json.loads(world.row("embedder").status)["cost"]
        assert (cost["actual"], cost["unpricedSeconds"]) == (0.0, 600.0)


async def test_what_costs_nothing_is_not_told() -> None:
    async with Fleet() as world:
        await world.apply("Function", "embedder", WARM)
        assert "cost" not in json.loads(world.row("embedder").status)
