"""What the engine leaves behind of a deleted object, and what an event keeps of a change."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.controllers.kinds.retention_decision import DEFAULTS, RetentionSort
from fleetctl.engine.execute.retention import forget_some
from tests.unit.engine.fake_world import Fleet, tasks

DAY_S = 86_400.0


def priced() -> dict[str, Any]:
    spec = tasks(2, cache={"policy": "Never"})
    spec["template"] |= {"timeoutSeconds": 100, "terminationGracePeriodSeconds": 0}
    return spec


def rows(world: Fleet, sql: str) -> list[Any]:
    return list(world.database.state.execute(sql).fetchall())


def told(world: Fleet, reason: str) -> list[str]:
    sql = "SELECT message FROM events WHERE reason = ? ORDER BY seq"
    return [message for (message,) in world.database.events.execute(sql, (reason,))]


async def test_a_budget_and_the_records_agree_on_what_a_deleted_job_cost() -> None:
    world = Fleet()
    world.local.price = 0.01
    async with world:
        await world.apply("Budget", "month", {"maxCost": 10, "period": "month"})
        await world.apply("BatchJob", "job", priced())
        world.clock.time_s += 100.0
        for index in (0, 1):
            world.local.finish(index)
        await world.settle()
        used = world.status("month")["used"]
        await world.delete("BatchJob", "job")
        assert world.names() == ["month"]
        assert world.status("month")["used"] == used > 0
        assert rows(world, "SELECT round(sum(usd), 6) FROM runs") == [(used,)]
        assert rows(world, "SELECT name FROM gone") == [("job",)]
        # The name is free, and its tasks are begun anew.
        await world.apply("BatchJob", "job", priced())
        assert world.local.working() == [0, 1]


async def test_retention_forgets_a_deleted_job_and_no_other() -> None:
    async with Fleet() as world:
        for name in ("old", "new", "stays"):
            await world.apply("BatchJob", name, tasks(1, cache={"policy": "Never"}))
            world.local.finish(0, of=f"batchjob/{name}")
            await world.settle()
        await world.delete("BatchJob", "old")
        await world.later(89 * DAY_S)
        await world.delete("BatchJob", "new")
        assert rows(world, "SELECT count(*) FROM gone") == [(2,)]
        await world.later(2 * DAY_S)
        while forget_some(world.engine.state, DEFAULTS[RetentionSort.DELETED]):
            await world.settle()
        assert rows(world, "SELECT name FROM gone") == [("new",)]
        assert rows(world, "SELECT count(*) FROM runs") == [(2,)]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [({"parallelism": 4}, "parallelism 3 -> 4"),
     ({"template": {"python": "pass", "env": {"TOKEN": "hunter2"}}}, "template.env"),
     ({"template": {"python": "token = 'hunter2'"}}, "template.python")],
)  # fmt: skip
async def test_an_event_keeps_what_an_apply_changed_and_no_secret(
    fields: dict[str, Any], kept: str
) -> None:
    async with Fleet() as world:
        await world.apply("BatchJob", "job", tasks(2, parallelism=3))
        await world.apply("BatchJob", "job", tasks(2, parallelism=3) | fields)
        (said,) = told(world, "Configured")
        assert said.startswith("batchjob/job configured: ") and kept in said
        assert "hunter2" not in said
