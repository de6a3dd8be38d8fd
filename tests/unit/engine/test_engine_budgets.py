"""The engine under budgets, at a provider with a price: what starts, what waits, what counts."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import LIVE_STATES
from tests.unit.engine.fake_world import Fleet, tasks

DAY_S = 86_400.0


def priced(count: int, *, cap: float | None = None, **fields: Any) -> dict[str, Any]:
    """Tasks of at most 100 s, which is $1 with the price of `fleet`: no grace, no quantum."""
    spec = tasks(count, parallelism=10, **fields)
    spec["template"] |= {"timeoutSeconds": 100, "terminationGracePeriodSeconds": 0}
    return spec | ({"budget": {"maxCost": cap}} if cap is not None else {})


def fleet() -> Fleet:
    made = Fleet()
    made.local.price = 0.01
    return made


def money_ok(world: Fleet) -> dict[str, Any]:
    found = [it for it in world.status("job")["conditions"] if it["type"] == "BudgetOK"]
    return dict(found[0])


def said(world: Fleet, reason: str) -> int:
    query = "SELECT coalesce(sum(count), 0) FROM events WHERE reason = ?"
    return int(world.database.events.execute(query, (reason,)).fetchone()[0])


def live(world: Fleet, name: str) -> int:
    return sum(run.state in LIVE_STATES for run in world.runs(name))


async def finish(world: Fleet, *indexes: int, of: str = "", after_s: float = 0.0) -> None:
    world.clock.time_s += after_s
    for index in indexes:
        world.local.finish(index, of=of)
    await world.settle()


async def test_no_more_starts_than_the_budget_can_pay_at_worst() -> None:
    async with fleet() as world:
        await world.apply("BatchJob", "job", priced(6, cap=3))
        assert world.local.working() == [0, 1, 2]
        assert world.status("job")["cost"]["reserved"] == 3.0
        assert world.status("job")["reason"] == "InProgress"


async def test_what_a_run_did_not_use_pays_for_others() -> None:
    async with fleet() as world:
        await world.apply("BatchJob", "job", priced(6, cap=3))
        await finish(world, 0, 1, 2, after_s=10.0)
        assert world.local.working() == [3, 4]
        await finish(world, 3, 4, after_s=10.0)
        await finish(world, 5, after_s=10.0)
        status = world.status("job")
        assert status["phase"] == "Succeeded"
        assert status["cost"]["actual"] == pytest.approx(0.6)


async def test_an_exhausted_budget_says_why_and_raising_it_goes_on_at_once() -> None:
    async with fleet() as world:
        await world.apply("BatchJob", "job", priced(4, cap=2))
        await finish(world, 0, 1, after_s=90.0)
        status = world.status("job")
        assert (status["phase"], status["reason"]) == ("Pending", "BudgetExhausted")
        assert status["stuck"]["lack"] == "money"
        assert status["message"] == (
            "the next task may cost $1.00, its budget has $0.20 of $2.00 left"
        )
        assert status["hint"] == "fleetctl set batchjob/job budget.maxCost=3.8"
        assert money_ok(world)["status"] == "False"
        assert said(world, "BudgetExhausted") == 1
        await world.apply("BatchJob", "job", priced(4, cap=5))
        assert world.local.working() == [2, 3]
        assert money_ok(world)["status"] == "True"


async def test_reservations_are_there_again_after_a_crash() -> None:
    async with fleet() as world:
        await world.apply("BatchJob", "job", priced(6, cap=3))
        await world.crash()
        await world.settle()
        assert world.local.working() == [0, 1, 2]


async def test_an_unknown_price_starts_nothing_until_it_is_known() -> None:
    async with fleet() as world:
        world.local.price = None
        await world.apply("BatchJob", "job", priced(1, cap=3))
        assert world.status("job")["reason"] == "PriceUnknown"
        world.local.price = 0.01
        await world.later(100.0)
        await world.apply("BatchJob", "job", priced(1, cap=4))
        assert world.local.working() == [0]


async def test_cancel_fails_the_object_and_stops_what_runs() -> None:
    async with fleet() as world:
        spec = priced(3, cap=1.5)
        spec["budget"]["onExceeded"] = "Cancel"
        await world.apply("BatchJob", "job", spec)
        assert world.local.working() == [0]
        await finish(world, 0, after_s=90.0)
        status = world.status("job")
        assert (status["phase"], status["reason"]) == ("Failed", "BudgetExceeded")
        assert world.local.working() == []


async def test_warn_goes_on_with_a_condition_and_an_event() -> None:
    async with fleet() as world:
        spec = priced(3, cap=1)
        spec["budget"]["onExceeded"] = "Warn"
        await world.apply("BatchJob", "job", spec)
        assert world.local.working() == [0, 1, 2]
        assert money_ok(world)["reason"] == "BudgetExceeded"
        assert said(world, "BudgetExceeded") == 1


async def test_a_warning_level_is_said_once_across_a_crash() -> None:
    async with fleet() as world:
        spec = priced(5, cap=4)
        spec["budget"]["warnAt"] = [40, 80]
        await world.apply("BatchJob", "job", spec)
        await finish(world, 0, 1, after_s=100.0)
        assert said(world, "BudgetWarning") == 1
        await world.crash()
        await world.settle()
        assert said(world, "BudgetWarning") == 1


async def test_one_budget_caps_all_objects_that_it_selects_and_no_other() -> None:
    async with fleet() as world:
        await world.apply("Budget", "team", {"selector": {"team": "a"}, "maxCost": 3})
        await world.apply("BatchJob", "one", priced(2), team="a")
        await world.apply("BatchJob", "two", priced(2), team="a")
        await world.apply("BatchJob", "free", priced(4), team="b")
        assert [live(world, name) for name in ("one", "two", "free")] == [2, 1, 4]
        status = world.status("team")
        assert (status["used"], status["reserved"], status["state"]) == (0.0, 3.0, "Exhausted")
        await finish(world, 0, of="batchjob/one", after_s=10.0)
        assert live(world, "two") == 1  # $0.90 is free again, and a task may cost $1
        await finish(world, 1, of="batchjob/one", after_s=0.0)
        assert live(world, "two") == 2


async def test_what_a_deleted_object_spent_still_counts() -> None:
    async with fleet() as world:
        await world.apply("Budget", "team", {"maxCost": 2})
        await world.apply("BatchJob", "one", priced(1))
        await finish(world, 0, after_s=50.0)
        await world.delete("BatchJob", "one")
        await world.crash()
        await world.settle()
        await world.apply("BatchJob", "two", priced(2))
        assert live(world, "two") == 1
        assert world.status("team")["used"] == pytest.approx(0.5)


async def test_a_new_period_begins_with_nothing_used_and_what_waits_goes_on() -> None:
    async with fleet() as world:
        await world.apply("Budget", "team", {"maxCost": 1.5, "period": "day"})
        await world.apply("BatchJob", "job", priced(2))
        await finish(world, 0, after_s=90.0)
        assert world.status("job")["reason"] == "BudgetExhausted"
        assert "left until 1970-01-02" in world.status("job")["message"]
        await world.later(DAY_S)
        assert world.local.working() == [1]
        assert world.status("team")["used"] == 0.0


async def test_waiting_for_room_at_the_provider_costs_nothing() -> None:
    async with fleet() as world:
        world.local.script["start"] = [
            Unavailable("full", retry_after_s=500.0, reason="NoCapacity")
        ]
        await world.apply("BatchJob", "job", priced(1, cap=3))
        await world.later(1_000.0)
        await finish(world, 0, after_s=20.0)
        [run] = world.runs("job")
        assert run.usd == pytest.approx(0.2)


async def test_an_idle_sandbox_is_paid_for_too() -> None:
    async with fleet() as world:
        await world.apply(
            "BatchJob", "job", priced(2, cap=50, sandbox={"reuse": 2}) | {"parallelism": 1}
        )
        await finish(world, 0, after_s=10.0)
        await finish(world, 1, after_s=20.0)
        assert sum(run.usd or 0.0 for run in world.runs("job")) == pytest.approx(0.3)


# -- money and places ------------------------------------------------------------------------------

ORDERED = {"ordered": [{"provider": "modal"}, {"provider": "local"}]}


def two_places(dear: float = 0.04) -> Fleet:
    """`modal`, where a task may cost $4, before `local`, where it may cost $1."""
    made = Fleet(("modal", "local"))
    made.providers["modal"].price, made.local.price = dear, 0.01
    return made


def working(world: Fleet) -> dict[str, int]:
    return {name: len(it.working()) for name, it in world.providers.items()}


async def test_what_a_budget_cannot_pay_at_the_best_place_starts_at_a_cheaper_one() -> None:
    async with two_places() as world:
        await world.apply("BatchJob", "job", priced(6, cap=6, placement=ORDERED))
        # $4 there, and what is left pays for two here: never more than the cap.
        assert working(world) == {"modal": 1, "local": 2}
        assert world.status("job")["cost"]["reserved"] == 6.0
        [why] = {run.placed for run in world.runs("job") if run.provider == "local"}
        assert why == (
            "the first that is paid for; `modal`: its budget cannot pay for one more there"
        )
        assert said(world, "SpillOver") == 1


async def test_a_place_too_dear_for_the_whole_budget_is_passed_by() -> None:
    async with two_places(dear=1.0) as world:
        await world.apply("BatchJob", "job", priced(2, cap=3, placement=ORDERED))
        assert working(world) == {"modal": 0, "local": 2}


async def test_an_unknown_price_is_passed_by_and_never_taken_for_nothing() -> None:
    async with two_places() as world:
        world.providers["modal"].price = None
        await world.apply("BatchJob", "job", priced(2, cap=3, placement=ORDERED))
        assert working(world) == {"modal": 0, "local": 2}


async def test_a_cancelling_budget_ends_nothing_while_a_cheaper_place_may_have_room() -> None:
    cap = {"maxCost": 2.0, "onExceeded": "Cancel"}
    async with two_places(dear=0.015) as world:
        await world.apply("Provider", "local", {"limits": {"maxConcurrent": 1}})
        job = priced(3, placement=ORDERED) | {"budget": cap}
        await world.apply("BatchJob", "job", job)
        assert working(world) == {"modal": 1, "local": 0}
        world.clock.time_s += 50.0  # of $1.50 the half is used, which leaves $1.25 for the rest
        world.providers["modal"].finish(0)
        await world.settle()
        assert working(world) == {"modal": 0, "local": 1}
        assert world.status("job")["phase"] == "Running"
        await finish(world, 1, after_s=10.0)
        await finish(world, 2, after_s=10.0)
        assert world.status("job")["phase"] == "Succeeded"
