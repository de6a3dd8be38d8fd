"""The engine with schedules on a clock that a test moves: what is made when, and what goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.controllers.kinds.schedule_decision import UNBEGUN_MAX
from fleetctl.tracking.annotations import SCHEDULED_AT
from tests.unit.engine.fake_world import Fleet, tasks

HOUR_S = 3600.0
# 2026-03-29 00:00 UTC: an hour before clocks go forward in Berlin.
BEGIN_S = 1_774_742_400.0


def fleet() -> Fleet:
    made = Fleet()
    made.clock.time_s = BEGIN_S
    made.engine.state.started_at_s = BEGIN_S
    return made


def hourly(**fields: Any) -> dict[str, Any]:
    template = {"kind": "BatchJob", "spec": tasks(1)}
    return {"schedule": "@hourly", "template": template, **fields}


def made(world: Fleet) -> list[float]:
    """The moments for which objects are there, in hours from BEGIN_S."""
    rows = [it for it in world.store.resources.list() if it.kind == "BatchJob"]
    return sorted((float(it.annotations[SCHEDULED_AT]) - BEGIN_S) / HOUR_S for it in rows)


def running(world: Fleet) -> list[str]:
    rows = [it for it in world.store.resources.list() if it.kind == "BatchJob"]
    return sorted(it.name for it in rows if json.loads(it.status).get("phase") == "Running")


def begun(world: Fleet) -> int:
    return len(world.local.orders)


def said(world: Fleet, reason: str) -> list[str]:
    query = "SELECT message FROM events WHERE reason = ? ORDER BY at_s"
    return [str(text) for (text,) in world.database.events.execute(query, (reason,))]


async def finish(world: Fleet, *, ok: bool = True) -> None:
    for name in running(world):
        world.local.finish(0, of=f"batchjob/{name}", ok=ok)
    await world.settle()


async def test_one_object_is_made_at_each_moment_and_status_tells_of_it() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly())
        assert made(world) == []
        assert world.status("tick")["nextScheduleTime"] == BEGIN_S + HOUR_S
        await world.later(HOUR_S - 1)
        assert made(world) == []
        await world.later(1)
        assert made(world) == [1.0]
        row = world.row(f"tick-{int(BEGIN_S + HOUR_S) // 60}")
        assert row.labels == {"fleetctl.dev/schedule": "tick"}
        status = world.status("tick")
        assert (status["active"], status["activeRuns"]) == (1, [row.key])
        assert status["lastScheduleTime"] == BEGIN_S + HOUR_S
        await finish(world)
        status = world.status("tick")
        assert (status["active"], status["lastSuccessfulTime"]) == (0, BEGIN_S + HOUR_S)
        assert not world.engine.idle(), "somebody must be there at the next moment"


async def test_equal_work_runs_again_each_time_unless_the_template_has_a_cache() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly())
        for _ in range(3):
            await world.later(HOUR_S)
            await finish(world)
        assert begun(world) == 3
        cached = {"kind": "BatchJob", "spec": tasks(1, cache={"policy": "ReuseSucceeded"})}
        await world.apply("Schedule", "tick", hourly(template=cached))
        await world.later(HOUR_S)
        assert begun(world) == 3


@pytest.mark.parametrize(("deadline_s", "late"), [(None, [5.0]), (1200, []), (4000, [5.0])])
async def test_after_downtime_the_last_missed_one_starts_late(
    deadline_s: float | None, late: list[float]
) -> None:
    async with fleet() as world:
        fields = {} if deadline_s is None else {"startingDeadlineSeconds": deadline_s}
        await world.apply("Schedule", "tick", hourly(**fields))
        await world.crash()
        world.clock.time_s += 5.5 * HOUR_S
        await world.settle()
        assert made(world) == late
        assert world.status("tick")["missed"] == 5 - len(late)
        (message,) = said(world, "RunsMissed")
        assert message.startswith(f"{5 - len(late)} runs were missed")
        await world.later(HOUR_S / 2)
        assert made(world) == [*late, 6.0]


async def test_a_clock_that_is_set_back_makes_nothing_twice() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly(successfulJobsHistoryLimit=0))
        await world.later(2 * HOUR_S)
        await finish(world)
        assert (made(world), begun(world)) == ([], 1)
        world.clock.time_s -= 2 * HOUR_S
        await world.later(HOUR_S)
        await world.crash()
        await world.later(60)
        assert world.status("tick")["reason"] == "ClockBehind"
        await world.later(HOUR_S - 60)
        assert begun(world) == 1
        await world.later(HOUR_S)
        assert (begun(world), made(world)) == (2, [3.0])


async def test_a_write_that_fails_and_a_crash_leave_one_object_a_moment() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly())
        world.fail_commits = 2
        await world.later(HOUR_S)
        assert made(world) == []
        await world.crash()
        for _ in range(2):
            await world.later(60)
        assert made(world) == [1.0]
        assert (begun(world), world.status("tick")["missed"]) == (1, 0)


async def test_forbid_waits_for_the_end_and_then_starts_the_last_one() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly(concurrencyPolicy="Forbid"))
        await world.later(HOUR_S)
        await world.later(2 * HOUR_S)
        assert made(world) == [1.0]
        assert world.status("tick")["reason"] == "Waiting"
        await finish(world)
        assert made(world) == [1.0, 3.0]
        assert world.status("tick")["missed"] == 1


async def test_replace_starts_once_the_one_before_is_confirmed_gone() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly(concurrencyPolicy="Replace"))
        await world.later(HOUR_S)
        (first,) = running(world)
        await world.later(HOUR_S)
        assert made(world) == [2.0]
        assert [it for it in running(world) if it == first] == []
        assert len(world.local.working()) == 1


async def test_history_limits_keep_the_newest_of_each_sort() -> None:
    async with fleet() as world:
        limits = {"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1}
        await world.apply("Schedule", "tick", hourly(**limits))
        for number in range(1, 8):
            await world.later(HOUR_S)
            await finish(world, ok=number not in (2, 4))
        assert made(world) == [4.0, 6.0, 7.0]


async def test_an_edit_concerns_later_moments_alone() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly())
        await world.later(HOUR_S)
        before = world.row(running(world)[0]).spec
        changed = {"kind": "BatchJob", "spec": tasks(1, maxInfraRetries=9)}
        await world.later(HOUR_S / 2)
        # Of the new line, 01:15 has passed: it was never wished for.
        await world.apply("Schedule", "tick", hourly(template=changed, schedule="15 * * * *"))
        assert made(world) == [1.0]
        await world.later(HOUR_S)
        assert made(world) == [1.0, 2.25]
        names = running(world)
        assert world.row(names[0]).spec == before
        assert json.loads(world.row(names[1]).spec)["maxInfraRetries"] == 9


async def test_a_suspended_one_starts_nothing_and_catches_up_as_a_cronjob_does() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly(suspend=True))
        await world.later(3.5 * HOUR_S)
        assert (made(world), world.status("tick")["phase"]) == ([], "Suspended")
        assert world.engine.idle()
        await world.apply("Schedule", "tick", hourly())
        assert made(world) == [3.0]


async def test_a_deleted_one_takes_its_objects_along() -> None:
    async with fleet() as world:
        await world.apply("Schedule", "tick", hourly())
        await world.later(HOUR_S)
        await finish(world)
        await world.later(HOUR_S)
        assert made(world) == [1.0, 2.0]
        await world.delete("Schedule", "tick")
        assert world.names() == []
        assert world.local.working() == []


async def test_where_another_object_has_the_name_it_says_so() -> None:
    async with fleet() as world:
        name = f"tick-{int(BEGIN_S + HOUR_S) // 60}"
        await world.apply("BatchJob", name, tasks(1))
        await world.apply("Schedule", "tick", hourly())
        await world.later(HOUR_S)
        status = world.status("tick")
        assert (status["reason"], status["active"]) == ("RunNotMade", 0)
        assert f"job/{name}" in status["message"] or name in status["message"]
        await world.delete("BatchJob", name)
        await world.later(60)
        assert made(world) == [1.0]


async def test_objects_that_never_begin_are_reported_once_and_have_a_bound() -> None:
    async with fleet() as world:
        stuck = {"kind": "BatchJob", "spec": tasks(1, parallelism=0)}
        await world.apply("Schedule", "tick", hourly(template=stuck))
        for _ in range(2):
            await world.later(HOUR_S)
        assert world.status("tick")["phase"] == "Ready", "a few may wait for each other"
        for _ in range(2):
            await world.later(HOUR_S)
        status = world.status("tick")
        assert (status["phase"], status["reason"]) == ("Pending", "RunsNotBegun")
        assert f"batchjob/tick-{int(BEGIN_S + HOUR_S) // 60}" in status["message"]
        for _ in range(UNBEGUN_MAX):
            await world.later(HOUR_S)
        assert len(made(world)) == UNBEGUN_MAX
        assert len(said(world, "RunsNotBegun")) == 1
        newest = max(it.name for it in world.store.resources.list() if it.kind == "BatchJob")
        await world.apply("BatchJob", newest, tasks(1))
        await world.later(0)
        assert len(made(world)) == UNBEGUN_MAX + 1, "the last one that was held back begins"
