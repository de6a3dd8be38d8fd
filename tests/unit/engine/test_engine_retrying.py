"""`retry`: what ended runs again, attempts are kept, and asking twice does no more than once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.controllers.model import RunState
from tests.unit.engine.fake_world import SECOND_LOOK_S, Fleet, tasks

FAILED, ALL = RetryChoice("failed"), RetryChoice("all")


def only(*ranges: range) -> RetryChoice:
    return RetryChoice("index", ranges)


async def ask(fleet: Fleet, choice: RetryChoice, kind: str = "BatchJob") -> tuple[int, int]:
    done = requeue_units(fleet.store, kind, "job", choice, fleet.clock.now_s())
    await fleet.settle()
    return done.units, done.live


async def half_failed(fleet: Fleet, count: int = 4, **fields: Any) -> None:
    """Tasks 0 and 1 succeed, the others fail."""
    await fleet.apply("BatchJob", "job", tasks(count, parallelism=count, **fields))
    for index in range(count):
        fleet.local.finish(index, ok=index < 2)
    await fleet.settle()


async def test_failed_tasks_run_again_and_the_finished_object_is_running() -> None:
    async with Fleet() as fleet:
        await half_failed(fleet)
        assert fleet.status("job")["phase"] == "Failed"
        assert await ask(fleet, FAILED) == (2, 0)
        assert fleet.local.working() == [2, 3]
        status = fleet.status("job")
        assert (status["phase"], status["failed"], status["succeeded"]) == ("Running", 0, 2)
        for index in (2, 3):
            fleet.local.finish(index)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Succeeded"
        attempts = {run.index: run.attempt for run in fleet.runs("job")}
        assert attempts == {0: 1, 1: 1, 2: 2, 3: 2}


async def test_failures_are_counted_anew() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, backoffLimitPerIndex=1))
        for _ in range(2):
            fleet.local.finish(0, ok=False)
            await fleet.later(60)
        assert fleet.status("job")["phase"] == "Failed"
        await ask(fleet, FAILED)
        fleet.local.finish(0, ok=False)
        await fleet.later(60)
        assert fleet.status("job")["phase"] == "Running"
        assert fleet.local.working() == [0]
        assert [run.attempt for run in fleet.runs("job")] == [1, 2, 3, 4]


async def test_succeeded_tasks_run_again_only_when_they_are_named() -> None:
    async with Fleet() as fleet:
        await half_failed(fleet)
        assert await ask(fleet, only(range(1, 3))) == (2, 0)
        assert fleet.local.working() == [1, 2]
        assert fleet.status("job")["succeeded"] == 1
        for index in (1, 2):
            fleet.local.finish(index)
        await fleet.settle()
        assert await ask(fleet, ALL) == (4, 0)
        assert fleet.local.working() == [0, 1, 2, 3]


async def test_what_runs_already_is_left_alone() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(3, parallelism=3))
        fleet.local.finish(0)
        await fleet.settle()
        before = fleet.local.run(1)
        assert await ask(fleet, ALL) == (1, 2)
        assert fleet.local.working() == [0, 1, 2]
        assert fleet.local.run(1) == before
        assert await ask(fleet, FAILED) == (0, 0)


async def test_asking_twice_does_no_more_than_once() -> None:
    async with Fleet() as fleet:
        await half_failed(fleet)
        first = replace(ALL, request="a")
        results = [
            requeue_units(fleet.store, "BatchJob", "job", choice, 1.0).units
            for choice in (first, first, replace(ALL, request="b"), FAILED)
        ]
        assert results == [4, 0, 0, 0]
        generation = fleet.row("job").generation
        await fleet.settle()
        assert fleet.local.working() == [0, 1, 2, 3]
        for index in range(4):
            fleet.local.finish(index)
        await fleet.settle()
        assert (
            requeue_units(fleet.store, "BatchJob", "job", replace(ALL, request="b"), 1.0).units == 4
        )
        assert fleet.row("job").generation == generation + 1


async def test_a_request_that_got_no_answer_may_be_repeated_later() -> None:
    async with Fleet() as fleet:
        await half_failed(fleet)
        choice = replace(FAILED, request="a")
        assert (await ask(fleet, choice))[0] == 2
        for index in (2, 3):
            fleet.local.finish(index, ok=False)
        await fleet.settle()
        assert (await ask(fleet, choice))[0] == 0
        assert fleet.status("job")["phase"] == "Failed"


async def test_a_crash_after_the_answer_forgets_nothing() -> None:
    async with Fleet() as fleet:
        await half_failed(fleet)
        requeue_units(fleet.store, "BatchJob", "job", ALL, 1.0)
        await fleet.crash()
        await fleet.settle()
        assert fleet.local.working() == [0, 1, 2, 3]
        await fleet.crash()
        assert fleet.local.working() == [0, 1, 2, 3]
        assert [run.put_aside for run in fleet.runs("job")] == [True, False] * 4


async def test_an_idle_sandbox_that_closes_at_that_moment_loses_no_wish() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=1, sandbox={"reuse": "all"}))
        fleet.local.finish(0)
        # The messages of the end are taken in in the turn that takes the spec in.
        requeue_units(fleet.store, "BatchJob", "job", only(range(1)), 1.0)
        await fleet.settle()
        fleet.local.finish(1)
        await fleet.settle()
        requeue_units(fleet.store, "BatchJob", "job", only(range(1)), 1.0)
        for box in fleet.local.boxes.values():
            box.alive = False
        await fleet.later(60)
        assert fleet.local.working() == [0]


async def test_a_result_that_is_known_is_not_taken_in_place_of_another_attempt() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "other", tasks(1))
        fleet.local.finish(0)
        await fleet.settle()
        shared = {"policy": "ReuseSucceeded"}
        await fleet.apply("BatchJob", "job", tasks(1, cache=shared))
        assert fleet.status("job")["cached"] == 1
        await ask(fleet, ALL)
        assert fleet.local.working() == [0]
        await fleet.crash()
        assert fleet.status("job")["cached"] == 0
        fleet.local.finish(0, of="batchjob/job")
        await fleet.settle()
        assert [run.reason for run in fleet.runs("job")] == ["Cached", "Completed"]


async def test_an_object_that_was_given_up_goes_on_with_what_is_left() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(3, parallelism=1, maxFailedIndexes=0))
        fleet.local.finish(0, ok=False)
        await fleet.settle()
        assert fleet.status("job")["reason"] == "MaxFailedIndexesExceeded"
        assert await ask(fleet, FAILED) == (1, 0)
        for index in range(3):
            fleet.local.finish(index)
            await fleet.settle()
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_trials_keep_their_indexes() -> None:
    search = {"method": "grid", "program": "t.py", "parameters": {"x": {"values": [1, 2, 3]}}}
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "job", {"search": search, "parallelism": 3})
        for index in range(3):
            fleet.local.finish(index)
        await fleet.settle()
        params = {run.index: run.params for run in fleet.runs("job")}
        assert await ask(fleet, only(range(1, 2)), kind="Sweep") == (1, 0)
        assert fleet.local.working() == [1]
        assert {run.index: run.params for run in fleet.runs("job")} == params


async def test_what_is_not_there_cannot_be_retried() -> None:
    async with Fleet() as fleet:
        await half_failed(fleet)
        with pytest.raises(NotFound, match="has no task 7"):
            await ask(fleet, only(range(8)))
        with pytest.raises(NotFound):
            requeue_units(fleet.store, "Sweep", "job", FAILED, 1.0)
        await fleet.apply("Volume", "job", {"provider": "local"})
        with pytest.raises(UsageError, match="runs nothing"):
            requeue_units(fleet.store, "Volume", "job", FAILED, 1.0)
        assert not any(run.put_aside for run in fleet.runs("job"))


async def test_a_refused_task_is_asked_for_again() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Refused("no such GPU")] * 2
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.later(SECOND_LOOK_S)
        assert fleet.runs("job")[0].state is RunState.REFUSED
        assert await ask(fleet, FAILED) == (1, 0)
        assert fleet.local.working() == [0]
