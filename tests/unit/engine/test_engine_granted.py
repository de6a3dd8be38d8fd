"""Runs whose template lists several GPUs: at what price they begin, and what they are charged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.fake_world import Fleet, tasks
from tests.unit.engine.test_engine_budgets import finish, said

LISTED = ["T4", "H100:2"]
CHEAP, DEAR = 0.01, 0.1  # USD a second
T4, H100S = ("Tesla T4",), ("NVIDIA H100 80GB HBM3",) * 2


def listing(count: int, *, cap: float | None = None, **fields: Any) -> dict[str, Any]:
    """Tasks of at most 100 s, which is $10 on the dearest."""
    spec = tasks(count, **{"parallelism": 10, **fields})
    spec["template"] |= {"timeoutSeconds": 100, "terminationGracePeriodSeconds": 0}
    spec["template"] |= {"runtime": "function", "resources": {"gpu": LISTED}}
    return spec | ({"budget": {"maxCost": cap}} if cap is not None else {})


def fleet(gpus: tuple[str, ...] = ()) -> Fleet:
    made = Fleet()
    made.local.gpu_prices = {"T4:1": CHEAP, "H100:2": DEAR}
    made.local.gpus = gpus
    return made


def prices(world: Fleet) -> list[float | None]:
    return [run.usd_per_s for run in world.runs("job")]


async def begun(world: Fleet, *indexes: int) -> None:
    """Their journals are heard of."""
    for index in indexes:
        world.local.notify(world.local.run(index))
    await world.settle()


async def test_the_dearest_is_set_aside_before_anybody_knows() -> None:
    async with fleet() as world:
        await world.apply("BatchJob", "job", listing(5, cap=25))
        assert world.local.working() == [0, 1]
        assert world.status("job")["cost"]["reserved"] == 20.0


@pytest.mark.parametrize(("gpus", "usd_per_s"), [(T4, CHEAP), (H100S, DEAR)])
async def test_a_run_is_charged_what_it_got(gpus: tuple[str, ...], usd_per_s: float) -> None:
    async with fleet(gpus) as world:
        await world.apply("BatchJob", "job", listing(1, cap=25))
        await finish(world, 0, after_s=50.0)
        assert world.status("job")["cost"]["actual"] == pytest.approx(50 * usd_per_s)
        assert world.status("job")["budget"]["used"] == pytest.approx(50 * usd_per_s)
        assert said(world, "GpuNotTold") == 0


async def test_what_does_not_tell_is_charged_as_the_dearest_and_that_is_said() -> None:
    async with fleet() as world:
        await world.apply("BatchJob", "job", listing(2, cap=25))
        await finish(world, 0, 1, after_s=50.0)
        assert world.status("job")["cost"]["actual"] == pytest.approx(2 * 50 * DEAR)
        assert said(world, "GpuNotTold") == 2


async def test_a_live_run_that_got_a_cheap_one_makes_room_for_others() -> None:
    async with fleet(T4) as world:
        world.local.begun_bytes = 5
        await world.apply("BatchJob", "job", listing(5, cap=25))
        assert world.local.working() == [0, 1]
        await begun(world, 0, 1)
        # $2 are set aside for two, and so $20 for two more; one that tells it makes room for one.
        assert world.local.working() == [0, 1, 2, 3]
        await begun(world, 2)
        assert world.local.working() == [0, 1, 2, 3, 4]
        assert world.status("job")["cost"]["reserved"] == pytest.approx(3 * 1.0 + 2 * 10.0)


async def test_what_it_got_is_known_after_a_crash() -> None:
    async with fleet(T4) as world:
        world.local.begun_bytes = 5
        await world.apply("BatchJob", "job", listing(1, cap=25))
        await begun(world, 0)
        await world.crash()
        world.local.gpus = ()  # the part of the journal that tells it was read
        await finish(world, 0, after_s=50.0)
        assert world.status("job")["cost"]["actual"] == pytest.approx(50 * CHEAP)


@pytest.mark.parametrize("factor", [0.5, 2.0])
async def test_a_price_that_changed_meanwhile_makes_no_run_cheaper_than_it_is(
    factor: float,
) -> None:
    async with fleet(T4) as world:
        await world.apply("BatchJob", "job", listing(1))
        world.local.gpu_prices = {"T4:1": CHEAP * factor, "H100:2": DEAR * factor}
        await finish(world, 0, after_s=10.0)
        [usd_per_s] = prices(world)
        assert usd_per_s is not None and CHEAP * factor <= usd_per_s <= DEAR


async def test_where_nothing_of_the_list_costs_there_is_nothing_to_say() -> None:
    async with Fleet() as world:
        await world.apply("BatchJob", "job", listing(1))
        await finish(world, 0)
        assert said(world, "GpuNotTold") == 0
