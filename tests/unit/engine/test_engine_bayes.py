"""A bayes search in the engine: points are worked out aside, stored with their run before anything
starts, and never worked out again.
"""

from __future__ import annotations

import json
from typing import Any

from fleetctl.controllers.model import RunState
from tests.unit.engine.fake_world import HANG, Fleet


def sweep(trials: int = 6, **fields: Any) -> dict[str, Any]:
    search = {
        "method": "bayes",
        "metric": {"name": "loss"},
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
        "run_cap": trials,
    }
    return {"template": {"python": "pass"}, "search": search, "parallelism": 2, **fields}


async def finish(fleet: Fleet, *indexes: int) -> None:
    for index in indexes:
        value = json.loads(fleet.runs("sw")[index].params)["x"]
        fleet.local.finish(index, result=json.dumps({"loss": (value - 0.5) ** 2}))
        await fleet.settle()


def points(fleet: Fleet) -> list[float]:
    return [json.loads(run.params)["x"] for run in fleet.runs("sw")]


async def test_the_first_points_are_drawn_and_the_others_suggested_as_trials_end() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep())
        assert (fleet.local.working(), fleet.worked) == ([0, 1], 0)
        await finish(fleet, 0, 1)
        assert (fleet.local.working(), fleet.worked) == ([2, 3], 0)
        await finish(fleet, 2)
        assert (fleet.local.working(), fleet.worked) == ([3, 4], 1)
        await finish(fleet, 3)
        assert (fleet.local.working(), fleet.worked) == ([4, 5], 2)
        await finish(fleet, 4, 5)
        status = fleet.status("sw")
        assert (status["phase"], status["succeeded"], fleet.worked) == ("Succeeded", 6, 2)
        assert len(set(points(fleet))) == 6


async def test_a_crash_in_the_midst_of_a_suggestion_counts_it_once() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep())
        fleet.works = [HANG]
        await finish(fleet, 0, 1, 2)
        assert fleet.local.working() == [3]
        await fleet.crash()
        await fleet.settle()
        assert fleet.local.working() == [3, 4]
        known = points(fleet)
        await fleet.crash()
        await fleet.settle()
        assert (points(fleet), fleet.worked) == (known, 1)
        assert [run.attempt for run in fleet.runs("sw")] == [1] * 5


async def test_a_suggestion_that_fails_is_told_and_tried_again() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep())
        fleet.works = [MemoryError("no room"), ValueError("odd")]
        await finish(fleet, 0, 1, 2, 3)
        assert fleet.local.working() == []
        assert fleet.status("sw")["phase"] == "Running"
        for _ in range(3):
            await fleet.later(60.0)
        assert fleet.local.working() == [4, 5]


async def test_an_attempt_that_is_lost_has_its_point_again() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep(maxInfraRetries=3))
        await finish(fleet, 0, 1, 2)
        fleet.local.finish(4, ok=False, infrastructure=True, reason="Preempted")
        await fleet.later(60.0)
        first, second = [run for run in fleet.runs("sw") if run.index == 4]
        assert (first.state, second.state) == (RunState.LOST, RunState.RUNNING)
        assert first.params == second.params


async def test_a_small_space_ends_the_search_before_its_trials_are_used_up() -> None:
    spec = sweep(trials=50)
    spec["search"]["parameters"] = {"x": {"values": [1, 2, 3, 4, 5]}}
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", spec)
        for index in range(5):
            await finish(fleet, index)
        status = fleet.status("sw")
        assert (status["phase"], status["total"], status["succeeded"]) == ("Succeeded", 5, 5)


async def test_trials_that_told_nothing_and_those_that_wait_keep_their_points() -> None:
    """Of twelve points each is tried once, whatever becomes of its trial."""
    spec = sweep(trials=50, backoffLimitPerIndex=1, parallelism=3)
    spec["search"]["parameters"] = {"x": {"values": list(range(12))}}
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", spec)
        for index in range(12):
            if index % 3 == 0:
                fleet.local.finish(index, result="{}")
            elif index % 3 == 1:
                fleet.local.finish(index, ok=False)  # waits before it is tried again
            else:
                await finish(fleet, index)
            await fleet.settle()
        first = [json.loads(run.params)["x"] for run in fleet.runs("sw") if run.attempt == 1]
        assert sorted(first) == list(range(12))


async def test_failures_before_any_value_keep_their_points() -> None:
    spec = sweep(trials=50, backoffLimitPerIndex=0, parallelism=1, maxFailedIndexes=50)
    spec["search"]["parameters"] = {"x": {"values": list(range(12))}}
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", spec)
        for index in range(12):
            fleet.local.finish(index, ok=False)
            await fleet.settle()
        assert sorted(points(fleet)) == list(range(12))


async def test_another_space_keeps_the_trials_that_lie_in_it() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep(trials=8))
        await finish(fleet, 0, 1, 2, 3, 4)
        kept = points(fleet)[4]
        spec = sweep(trials=8)
        spec["search"]["parameters"] = {"x": {"min": 0.0, "max": kept / 2}}
        await fleet.apply("Sweep", "sw", spec)
        again = [json.loads(run.params)["x"] for run in fleet.runs("sw") if run.index == 4]
        assert again[0] == kept
        assert all(it <= kept / 2 for it in again[1:])


async def test_another_sampler_suggests_with_the_same_care() -> None:
    spec = sweep(trials=12)
    spec["search"] |= {"sampler": {"name": "tpe", "startupTrials": 4}}
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", spec)
        await finish(fleet, 0, 1, 2, 3, 4)
        await fleet.crash()
        await fleet.settle()
        await finish(fleet, *range(5, 12))
        assert (fleet.status("sw")["phase"], len(set(points(fleet)))) == ("Succeeded", 12)
        assert [run.attempt for run in fleet.runs("sw")] == [1] * 12


async def test_an_idle_worker_waits_for_the_next_point() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep(trialsPerWorker=8, parallelism=1))
        for index in range(6):
            await finish(fleet, index)
        assert len(fleet.local.boxes) == 1
        assert fleet.status("sw")["succeeded"] == 6
