"""Work over several providers: limits, prices and breakers of Provider objects, and spill-over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import RunState
from fleetctl.engine.sleeping import nudge_object
from tests.unit.engine.fake_world import SECOND_LOOK_S, Fleet, tasks

NAMES = ("daytona", "modal", "local")
ORDERED = {"ordered": [{"provider": name} for name in NAMES]}
ANY_OF = {"anyOf": [{"provider": name} for name in NAMES]}


def fleet(*names: str) -> Fleet:
    return Fleet(names or NAMES)


def working(fleet: Fleet) -> dict[str, int]:
    """provider -> how many tasks work there."""
    return {name: len(it.working()) for name, it in fleet.providers.items() if it.working()}


def full(count: int) -> list[Unavailable]:
    return [Unavailable("no more", reason="Quota", retry_after_s=5.0) for _ in range(count)]


def placement(status: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {it["provider"]: (it["live"], it["total"]) for it in status["placement"]}


async def limit(fleet: Fleet, name: str, **spec: Any) -> None:
    await fleet.apply("Provider", name, spec)


# -- limits of Provider objects --------------------------------------------------------------------


async def test_work_runs_over_when_the_first_place_is_at_its_limit() -> None:
    async with fleet() as world:
        await limit(world, "daytona", limits={"maxConcurrent": 2})
        await limit(world, "modal", limits={"maxConcurrent": 3})
        await world.apply("BatchJob", "a", tasks(9, parallelism=8, placement=ORDERED))
        assert working(world) == {"daytona": 2, "modal": 3, "local": 3}
        placed = {run.provider: run.placed for run in world.runs("a")}
        assert placed["daytona"] == "first in order"
        assert placed["modal"] == (
            "first in order with room; `daytona`: its limit of 2 sandboxes is reached"
        )


async def test_a_condition_tells_that_work_ran_over_and_why_until_the_spec_is_another() -> None:
    def spill(world: Fleet) -> tuple[str, str] | None:
        found = {it["type"]: it for it in world.status("a")["conditions"]}.get("SpilledOver")
        return (found["status"], found["message"]) if found else None

    async with fleet() as world:
        desired = tasks(3, parallelism=1, placement=ORDERED)
        await world.apply("BatchJob", "a", desired)
        assert spill(world) is None
        await limit(world, "daytona", limits={"maxConcurrent": 1})
        await world.apply("BatchJob", "a", {**desired, "parallelism": 2})
        because = "first in order with room; `daytona`: its limit of 1 sandboxes is reached"
        assert spill(world) == ("True", f"modal: {because}")
        world.providers["modal"].finish(1)
        await world.settle()
        await world.crash()
        await world.settle()
        assert spill(world) == ("True", f"modal: {because}")
        await world.apply("BatchJob", "a", {**desired, "parallelism": 0})
        assert spill(world) == ("False", "")


async def test_a_place_that_has_room_again_is_filled_first() -> None:
    async with fleet() as world:
        await limit(world, "daytona", limits={"maxConcurrent": 1})
        await world.apply("BatchJob", "a", tasks(4, parallelism=2, placement=ORDERED))
        assert working(world) == {"daytona": 1, "modal": 1}
        world.providers["daytona"].finish(0)
        await world.settle()
        assert working(world) == {"daytona": 1, "modal": 1}
        assert [it.provider for it in world.runs("a")] == ["daytona", "modal", "daytona"]


async def test_a_changed_limit_is_in_force_at_once_and_a_deleted_one_is_none() -> None:
    async with fleet("local") as world:
        await limit(world, "local", limits={"maxConcurrent": 1})
        await world.apply("BatchJob", "a", tasks(9, parallelism=6))
        assert working(world) == {"local": 1}
        assert world.status("a")["waitingOn"] == [
            "provider `local`: its limit of 1 sandboxes is reached"
        ]
        await limit(world, "local", limits={"maxConcurrent": 3})
        assert working(world) == {"local": 3}
        await world.delete("Provider", "local")
        assert working(world) == {"local": 6}


async def test_a_limit_holds_over_all_objects_and_across_a_crash() -> None:
    async with fleet("local") as world:
        await limit(world, "local", limits={"maxConcurrent": 3})
        for name in ("a", "b", "c"):
            await world.apply("BatchJob", name, tasks(2))
        assert working(world) == {"local": 3}
        await world.crash()
        await world.settle()
        assert working(world) == {"local": 3}


async def test_the_contract_stays_in_force_under_a_wider_object() -> None:
    from dataclasses import replace

    from tests.unit.engine.fake_world import CONTRACT

    async with Fleet(("local",), contract=replace(CONTRACT, sandboxes_at_once=2)) as world:
        await limit(world, "local", limits={"maxConcurrent": 30})
        await world.apply("BatchJob", "a", tasks(9, parallelism=6))
        assert working(world) == {"local": 2}


async def test_no_more_sandboxes_are_made_in_a_minute_than_allowed() -> None:
    async with fleet("local") as world:
        await limit(world, "local", limits={"createsPerMinute": 2})
        await world.apply("BatchJob", "a", tasks(5, parallelism=5))
        assert working(world) == {"local": 2}
        await world.later(59.0)
        assert working(world) == {"local": 2}
        await world.later(1.5)
        assert working(world) == {"local": 4}


async def test_a_restart_within_the_minute_makes_no_more_sandboxes_than_allowed() -> None:
    async with fleet("local") as world:
        await limit(world, "local", limits={"createsPerMinute": 2})
        await world.apply("BatchJob", "a", tasks(5, parallelism=5))
        await world.later(20.0)
        await world.crash()
        await world.apply("BatchJob", "b", tasks(2))
        await world.later(39.0)
        assert working(world) == {"local": 2}
        await world.later(1.5)
        assert working(world) == {"local": 4}


async def test_a_create_without_an_answer_counts_after_a_restart_too() -> None:
    async with fleet("local") as world:
        await limit(world, "local", limits={"createsPerMinute": 1})
        world.local.script["start"] = [TimeoutError()]
        await world.apply("BatchJob", "a", tasks(1))
        await world.crash()
        await world.later(30.0)
        assert working(world) == {}
        await world.crash()
        await world.later(31.0)
        assert working(world) == {"local": 1}


async def test_starts_above_a_lowered_limit_are_taken_back_and_what_runs_goes_on() -> None:
    async with fleet("local") as world:
        world.local.script["start"] = [None, None, *full(4)]
        await world.apply("BatchJob", "a", tasks(6, parallelism=6))
        assert working(world) == {"local": 2}
        await limit(world, "local", limits={"maxConcurrent": 1})
        await world.later(60.0)
        assert working(world) == {"local": 2}
        assert world.status("a")["active"] == 2
        world.local.finish(0)
        world.local.finish(1)
        await world.settle()
        assert working(world) == {"local": 1}


# -- prices and breakers ---------------------------------------------------------------------------


async def test_a_breaker_keeps_live_spend_at_or_below_it() -> None:
    async with fleet("local") as world:
        await limit(world, "local", prices={"perHour": 0.4}, breaker={"maxSpendPerHour": 1.2})
        await world.apply("BatchJob", "a", tasks(9, parallelism=6))
        assert working(world) == {"local": 3}
        seen = world.status("local")
        assert seen["spend"] == {"usdPerHour": 1.2, "unpriced": 0}
        assert seen["slots"] == {"used": 3, "limit": None}
        assert "would exceed maxSpendPerHour of $1.20/h" in world.status("a")["waitingOn"][0]
        world.local.finish(0)
        await world.settle()
        assert working(world) == {"local": 3}


async def test_slots_are_told_anew_when_a_run_starts_and_ends_between_two_turns() -> None:
    async with fleet("local") as world:
        await limit(world, "local", limits={"maxConcurrent": 2})
        await world.apply("BatchJob", "a", tasks(2, parallelism=1))
        world.local.finish(0)
        world.engine.notify(world.local.run(0))
        while world.local.working() != [1]:  # begun, and no turn has heard of it
            world.engine.ticks.make()
            for _ in range(3):
                await asyncio.sleep(0)
        world.local.finish(1)
        world.engine.notify(world.local.run(1))
        for _ in range(3):
            await asyncio.sleep(0)
        await world.settle()
        assert world.status("a")["phase"] == "Succeeded"
        assert world.status("local")["slots"] == {"used": 0, "limit": 2}


async def test_an_unknown_price_does_not_start_under_a_breaker() -> None:
    async with fleet("local") as world:
        world.local.price = None
        await limit(world, "local", breaker={"maxSpendPerHour": 5})
        await world.apply("BatchJob", "a", tasks(2))
        assert working(world) == {}
        assert "its price is not known" in world.status("a")["message"]
        await limit(world, "local", prices={"perHour": 1}, breaker={"maxSpendPerHour": 5})
        assert working(world) == {"local": 2}


async def test_any_of_fills_the_cheapest_first() -> None:
    async with fleet() as world:
        prices = {"daytona": 0.5, "modal": 0.25, "local": None}
        for name, price in prices.items():
            world.providers[name].price = None if price is None else price / 3600
            await limit(world, name, limits={"maxConcurrent": 2})
        await world.apply("BatchJob", "a", tasks(9, parallelism=3, placement=ANY_OF))
        assert working(world) == {"modal": 2, "daytona": 1}


async def test_a_price_above_the_greatest_one_is_no_place() -> None:
    dear = {"ordered": [{"provider": "modal", "maxPricePerHour": 1}, {"provider": "local"}]}
    async with fleet() as world:
        world.providers["modal"].price = 2 / 3600
        await world.apply("BatchJob", "a", tasks(2, placement=dear))
        assert working(world) == {"local": 2}
        placed = world.runs("a")[0].placed
        assert "$2.00/h is above its maxPricePerHour of $1.00/h" in placed


async def test_where_no_candidate_can_ever_fit_the_object_says_why_of_each() -> None:
    async with fleet() as world:
        for it in world.providers.values():
            it.lacking = "it has no GPU"
        await world.apply("BatchJob", "a", tasks(2, placement=ORDERED))
        assert working(world) == {}
        assert world.status("a")["reason"] == "NoPlace"
        assert world.status("a")["message"].count("it has no GPU") == 3


async def test_work_that_mounts_a_volume_stays_where_the_volume_is() -> None:
    mounts = {"python": "SUBMIT()", "volumes": [{"name": "data", "mountPath": "/data"}]}
    async with fleet() as world:
        await world.apply("Volume", "data", {"provider": "modal"})
        await world.apply(
            "BatchJob", "a", tasks(3, placement=ORDERED, template=mounts, parallelism=3)
        )
        assert working(world) == {"modal": 3}
        assert "volume `data` is kept on `modal`" in world.runs("a")[0].placed


# -- spill-over ------------------------------------------------------------------------------------


async def test_a_start_that_waits_for_quota_moves_and_costs_no_attempt() -> None:
    async with fleet() as world:
        world.providers["daytona"].script["start"] = [None, *full(100)]
        await world.apply(
            "BatchJob", "a", tasks(4, parallelism=4, backoffLimitPerIndex=0, placement=ORDERED)
        )
        assert working(world) == {"daytona": 1}
        await world.later(20.0)
        assert working(world) == {"daytona": 1}
        await world.later(11.0)
        assert working(world) == {"daytona": 1, "modal": 3}
        moved = [run for run in world.runs("a") if run.reason == "SpilledOver"]
        assert [run.state for run in moved] == [RunState.STOPPED] * 3
        assert world.status("a")["failed"] == 0
        for name in ("daytona", "modal"):
            for index in world.providers[name].working():
                world.providers[name].finish(index)
        await world.settle()
        assert world.status("a")["phase"] == "Succeeded"


async def test_what_comes_later_goes_at_once_where_there_is_room() -> None:
    async with fleet() as world:
        world.providers["daytona"].script["start"] = [None, *full(100)]
        await world.apply("BatchJob", "a", tasks(8, parallelism=3, placement=ORDERED))
        await world.later(31.0)
        assert working(world) == {"daytona": 1, "modal": 2}
        modal = world.providers["modal"]
        modal.finish(modal.working()[0])
        await world.settle()
        assert working(world) == {"daytona": 1, "modal": 2}
        assert sum(run.provider == "daytona" for run in world.runs("a")) == 3


async def test_a_seat_that_gets_free_is_taken_again_and_a_grown_quota_is_found() -> None:
    async with fleet() as world:
        daytona, modal = world.providers["daytona"], world.providers["modal"]
        daytona.script["start"] = [None, *full(4)]
        await world.apply("BatchJob", "a", tasks(40, parallelism=3, placement=ORDERED))
        daytona.script["start"] += full(20)
        await world.later(31.0)
        daytona.script["start"].clear()
        assert working(world) == {"daytona": 1, "modal": 2}
        daytona.finish(daytona.working()[0])
        await world.settle()
        assert working(world) == {"daytona": 1, "modal": 2}
        await world.later(31.0)  # the provider is tried with one more
        for _ in range(2):
            modal.finish(modal.working()[0])
            await world.settle()
        assert working(world) == {"daytona": 3}


async def test_only_what_is_told_in_on_makes_work_move() -> None:
    only = {**ORDERED, "spillOver": {"afterSeconds": 0, "on": ["RateLimited"]}}
    async with fleet() as world:
        world.providers["daytona"].script["start"] = full(100)
        await world.apply("BatchJob", "a", tasks(2, placement=only))
        await world.later(100.0)
        assert working(world) == {}


async def test_a_start_whose_outcome_is_unknown_is_confirmed_gone_before_it_moves() -> None:
    async with fleet() as world:
        daytona = world.providers["daytona"]
        daytona.script["start"] = [ConnectionError("lost"), *full(100)]
        await world.apply("BatchJob", "a", tasks(1, placement=ORDERED))
        await world.later(5.0)
        await world.later(35.0)
        await world.later(1.0)
        assert daytona.stops == [world.runs("a")[0].name]
        assert working(world) == {"modal": 1}


async def test_case_8_a_start_that_may_have_begun_has_time_to_save_before_it_moves() -> None:
    async with fleet() as world:
        daytona, modal = world.providers["daytona"], world.providers["modal"]
        daytona.script["start"] = [ConnectionError("lost"), *full(100)]
        checkpoint = {"path": "/ckpt/run", "signalBeforeStopSeconds": 20}
        spec = {"template": {"script": "train"}, "checkpoint": checkpoint, "placement": ORDERED}
        await world.apply("TrainingRun", "t", spec)
        for seconds in (5.0, 35.0, 1.0):
            await world.later(seconds)
        first, second = world.runs("t")
        assert daytona.graces == {first.name: 20.0}
        assert (first.reason, working(world)) == ("SpilledOver", {"modal": 1})
        order = modal.orders[second.name]
        assert order.checkpoint is not None and order.checkpoint.resume == "Latest"


async def test_a_refusal_of_one_place_leaves_the_others() -> None:
    async with fleet() as world:
        refusal = Refused("no such image", hint="push it")
        world.providers["daytona"].script["start"] = [refusal] * 8
        await world.apply("BatchJob", "a", tasks(3, parallelism=3, placement=ORDERED))
        await world.later(SECOND_LOOK_S)
        assert working(world) == {"modal": 3}
        assert world.runs("a")[-1].placed == "first in order; `daytona`: no such image"


async def test_a_place_that_refused_is_asked_again_when_the_object_is_applied_again() -> None:
    async with fleet() as world:
        world.providers["daytona"].script["start"] = [Refused("no such image")] * 2
        await world.apply("BatchJob", "a", tasks(3, parallelism=1, placement=ORDERED))
        await world.later(SECOND_LOOK_S)
        assert working(world) == {"modal": 1}
        nudge_object(world.engine.state, world.row("a").uid)
        world.providers["modal"].finish(0)
        await world.settle()
        assert working(world) == {"daytona": 1}


async def test_running_over_is_told_once_for_each_place_that_it_runs_over_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet() as world:
        parts: list[tuple[str, str]] = []
        monkeypatch.setattr(
            world.engine.state,
            "say",
            lambda uid, reason, text, hint="", kind="": parts.append((reason, text)),
        )
        for name in ("daytona", "modal"):
            await limit(world, name, limits={"maxConcurrent": 1})
        await world.apply("BatchJob", "a", tasks(9, parallelism=6, placement=ORDERED))
        world.local.finish(world.local.working()[0])
        await world.settle()
        texts = [text for reason, text in parts if reason == "SpillOver"]
        assert [text.partition(":")[0] for text in texts] == [
            "work moves on to `modal`",
            "work moves on to `local`",
        ]
        assert "`daytona`: its limit of 1 sandboxes is reached" in texts[0]


async def test_when_all_places_refuse_the_whole_fails_by_it() -> None:
    async with fleet() as world:
        for it in world.providers.values():
            it.script["start"] = [Refused("no such image")] * 8
        await world.apply("BatchJob", "a", tasks(2, placement=ORDERED))
        for _ in world.providers:
            await world.later(SECOND_LOOK_S)
        assert world.status("a")["phase"] == "Failed"
        assert world.status("a")["reason"] == "Refused"


# -- what people see -------------------------------------------------------------------------------


async def test_status_tells_how_many_ran_where() -> None:
    async with fleet() as world:
        await limit(world, "daytona", limits={"maxConcurrent": 1})
        await world.apply("BatchJob", "a", tasks(3, parallelism=2, placement=ORDERED))
        assert placement(world.status("a")) == {"daytona": (1, 1), "modal": (1, 1), "local": (0, 0)}
        world.providers["modal"].finish(1)
        await world.settle()
        assert placement(world.status("a")) == {"daytona": (1, 1), "modal": (1, 2), "local": (0, 0)}
        await world.crash()
        await world.settle()
        assert placement(world.status("a")) == {"daytona": (1, 1), "modal": (1, 2), "local": (0, 0)}


async def test_the_default_parallelism_is_the_sum_over_the_candidates() -> None:
    async with fleet() as world:
        await limit(world, "daytona", limits={"maxConcurrent": 2})
        await world.apply("BatchJob", "a", tasks(20, placement=ORDERED))
        assert working(world) == {"daytona": 2, "modal": 10}


async def test_an_object_that_fits_nowhere_is_looked_at_when_a_provider_changes() -> None:
    dear = {"ordered": [{"provider": "local", "maxPricePerHour": 1}, {"provider": "modal"}]}
    async with fleet() as world:
        world.local.price = 2 / 3600
        world.providers["modal"].lacking = "it has no GPU"
        await world.apply("BatchJob", "a", tasks(2, placement=dear))
        assert working(world) == {}
        await limit(world, "local", prices={"perHour": 0.5})
        assert working(world) == {"local": 2}


async def test_room_that_another_object_gives_back_is_taken() -> None:
    async with fleet() as world:
        for name in NAMES:
            await limit(world, name, limits={"maxConcurrent": 1})
        await world.apply("BatchJob", "a", tasks(3, parallelism=3, placement=ORDERED))
        await world.apply("BatchJob", "b", tasks(3, parallelism=3, placement=ORDERED))
        assert working(world) == {"daytona": 1, "modal": 1, "local": 1}
        world.providers["modal"].finish(1, of="batchjob/a")
        await world.settle()
        [live] = [run for run in world.runs("b") if run.state is RunState.RUNNING]
        assert live.provider == "modal"
