"""Stages in the engine: what a retry redoes, and what a stage is told of those before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.apply.consent import NeedsConsent
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.common.errors import NotFound, UsageError
from tests.unit.engine.fake_world import Fleet

STAGES = [{"name": "data"}, {"name": "train"}, {"name": "test"}]


async def training(fleet: Fleet, **fields: Any) -> None:
    spec = {"template": {"script": "true"}, "stages": STAGES, **fields}
    await fleet.apply("TrainingRun", "t", spec)


async def finish(fleet: Fleet, *indexes: int) -> None:
    for index in indexes:
        fleet.local.finish(index, result=json.dumps({"of": index}))
        await fleet.settle()


def again(fleet: Fleet, **choice: Any) -> int:
    return requeue_units(
        fleet.store, "TrainingRun", "t", RetryChoice(**choice), fleet.clock.now_s()
    ).units


async def test_case_18_a_retried_stage_asks_and_redoes_the_later_ones() -> None:
    async with Fleet() as fleet:
        await training(fleet)
        await finish(fleet, 0, 1, 2)
        with pytest.raises(NeedsConsent) as refused:
            again(fleet, which="index", indexes=(range(1, 2),))
        assert refused.value.losses == (
            "trainingrun/t: stage test has succeeded, builds on it, and would run again",
        )
        assert again(fleet, which="index", indexes=(range(1, 2),), approved=True) == 2
        await fleet.settle()
        assert fleet.local.working() == [1]
        await finish(fleet, 1, 2)
        assert fleet.status("t")["phase"] == "Succeeded"


async def test_case_18_with_only_the_later_stages_stay_as_they_are() -> None:
    async with Fleet() as fleet:
        await training(fleet)
        await finish(fleet, 0, 1, 2)
        assert again(fleet, which="index", names=("data",), only=True) == 1
        await fleet.settle()
        assert fleet.local.working() == [0]
        await finish(fleet, 0)
        assert fleet.status("t")["phase"] == "Succeeded"


async def test_a_retry_from_a_stage_says_it_all_and_is_asked_of_running_work_alone() -> None:
    async with Fleet() as fleet:
        await training(fleet)
        await finish(fleet, 0, 1)
        with pytest.raises(NeedsConsent, match="stage test runs, builds on it, and would be stop"):
            again(fleet, which="from", names=("train",))
        with pytest.raises(UsageError, match="stage test of trainingrun/t runs, and builds on"):
            again(fleet, which="index", names=("data",), only=True)
        assert again(fleet, which="from", names=("train",), approved=True) == 1
        await fleet.settle()
        await fleet.settle()
        assert fleet.local.working() == [1]  # `test` was stopped, and waits for it
        await finish(fleet, 1, 2)
        assert again(fleet, which="from", names=("train",)) == 2  # nothing runs that is lost


async def test_a_stage_that_is_not_there_is_told_with_those_that_are() -> None:
    async with Fleet() as fleet:
        await training(fleet)
        with pytest.raises(NotFound, match="no stage `tarin`") as refused:
            again(fleet, which="index", names=("tarin",))
        assert "train" in refused.value.hint


async def test_a_stage_reads_the_results_of_those_before_it() -> None:
    async with Fleet() as fleet:
        await training(fleet)
        assert fleet.local.orders[fleet.local.run(0)].variables == {}
        fleet.local.finish(0, result=json.dumps({"rows": 7}))
        await fleet.settle()
        fleet.local.finish(1, result=json.dumps({"text": "x" * 70_000}))
        await fleet.settle()
        told = fleet.local.orders[fleet.local.run(2)].variables["FLEETCTL_STAGE_RESULTS"]
        assert json.loads(told) == {"data": {"rows": 7}, "train": None}  # too large to hand on


async def test_events_call_a_stage_by_its_name() -> None:
    async with Fleet() as fleet:
        await training(fleet, maxRestarts=1)
        fleet.local.finish(0, ok=False)
        await fleet.settle()
        rows = fleet.database.events.execute("SELECT message FROM events").fetchall()
        assert ("stage data attempt 1 failed: ExitCode:1",) in rows
