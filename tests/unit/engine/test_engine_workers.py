"""A worker is warm: trials take turns in one sandbox, until its life is over; no trial is cut by
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.engine.fake_world import CONTRACT, Fleet

DAY_S = 86_400.0
DAYS = replace(CONTRACT, max_lifetime_s=DAY_S)
USUAL = replace(CONTRACT, usual_lifetime_s=DAY_S)


def sweep(trials: int, **fields: Any) -> dict[str, Any]:
    return {
        "search": {"method": "random", "parameters": {"x": {"min": 0.0, "max": 1.0}}},
        "trials": trials,
        "trialsPerWorker": trials,
        "parallelism": 1,
        "template": {"python": "SUBMIT(x=1)", "timeoutSeconds": fields.pop("timeout", None)},
        **fields,
    }


async def workers(fleet: Fleet, each_s: list[float], *, crash: bool = False) -> list[int]:
    """Of each trial, which of the sandboxes it ran in, when trials take so many seconds."""
    for index, seconds in enumerate(each_s):
        if crash:
            await fleet.crash()
            await fleet.settle()
        assert fleet.local.working() == [index]
        await fleet.later(seconds)
        assert fleet.local.stops == []
        assert fleet.local.working() == [index]  # however old its sandbox is
        fleet.local.finish(index)
        await fleet.settle()
        fleet.local.stops.clear()  # idle ones that are closed
    assert fleet.status("lr")["succeeded"] == len(each_s)
    assert not any(box.alive for box in fleet.local.boxes.values())
    names = list(fleet.local.boxes)
    return [names.index(order.sandbox) for order in fleet.local.orders.values()]


async def test_a_worker_that_is_too_old_gets_no_further_trial() -> None:
    async with Fleet() as fleet:
        spec = sweep(5, sandbox={"maxLifetimeSeconds": 100}, timeout=1000)
        await fleet.apply("Sweep", "lr", spec)
        assert await workers(fleet, [60, 60, 99, 1, 500]) == [0, 0, 1, 1, 2]


async def test_a_restart_knows_how_old_a_worker_is() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", sweep(4, sandbox={"maxLifetimeSeconds": 100}))
        assert await workers(fleet, [60, 60, 60, 60], crash=True) == [0, 0, 1, 1]


async def test_both_limits_of_a_worker_count() -> None:
    async with Fleet() as fleet:
        spec = sweep(4, trialsPerWorker=2, sandbox={"maxLifetimeSeconds": 100})
        await fleet.apply("Sweep", "lr", spec)
        assert await workers(fleet, [10, 10, 100, 10]) == [0, 0, 1, 2]


async def test_a_trial_begins_where_its_provider_leaves_it_its_time() -> None:
    """A sandbox ends after a day there; the last trial may take three hours."""
    for contract in (DAYS, USUAL):
        async with Fleet(contract=contract) as fleet:
            await fleet.apply("Sweep", "lr", sweep(4, timeout=3 * 3600))
            assert await workers(fleet, [7 * 3600, 7 * 3600, 7 * 3600, 60]) == [0, 0, 0, 1]


async def test_a_trial_without_a_limit_gets_half_a_life() -> None:
    async with Fleet(contract=DAYS) as fleet:
        await fleet.apply("Sweep", "lr", sweep(3))
        assert await workers(fleet, [11 * 3600, 2 * 3600, 60]) == [0, 0, 1]
