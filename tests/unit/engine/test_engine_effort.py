"""What a tick costs, in function calls, which are the same on every machine and at every load."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from fleetctl.apply.write import commit
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.engine.fake_world import Fleet, tasks

# A pass and a drive look at each live run a few times: 7 calls for each, and once there were 14.
CALLS_A_LIVE_RUN_MAX = 9


class Calls:
    """Counts the calls of functions, Python's own too, while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, value: object) -> None:
        self.count += event in ("call", "c_call")


async def calls_of_an_end(*, done: int, live: int, over: int = 0) -> int:
    """Calls in the one tick that hears of a task's end and starts the next, after `done` others.

    over: objects beside it that are over.
    """
    async with Fleet(settings=EngineSettings(messages_per_tick_max=10_000)) as fleet:
        for number in range(over):
            await fleet.apply("BatchJob", f"over-{number}", tasks(1, cache={"policy": "Never"}))
            fleet.local.finish(0, of=f"batchjob/over-{number}")
            await fleet.settle()
        await fleet.apply("BatchJob", "a", tasks(done + live + 1, parallelism=live))
        ended = 0
        while ended < done:
            for index in range(ended, min(done, ended + live)):
                fleet.local.finish(index, of="batchjob/a")
                ended += 1
            await fleet.settle()
        assert (fleet.status("a")["succeeded"], fleet.status("a")["active"]) == (done, live)
        fleet.local.finish(done, of="batchjob/a")
        for _ in range(10):
            await asyncio.sleep(0)
        with Calls() as calls:
            fleet.engine.ticks.make()
        await fleet.settle()
        assert (fleet.status("a")["succeeded"], fleet.status("a")["active"]) == (done + 1, live)
        return calls.count


async def test_a_turn_costs_no_more_after_many_finished_tasks() -> None:
    few, many = [await calls_of_an_end(done=done, live=5) for done in (10, 1_000)]
    assert many <= few + 20


async def test_a_turn_asks_little_of_each_live_run() -> None:
    few, many = [await calls_of_an_end(done=0, live=live) for live in (10, 210)]
    assert (many - few) / 200 <= CALLS_A_LIVE_RUN_MAX


async def test_objects_that_are_over_cost_a_turn_nothing() -> None:
    few, many = [await calls_of_an_end(done=0, live=5, over=number) for number in (1, 50)]
    assert many == few


async def test_a_search_that_is_new_draws_only_the_points_that_start() -> None:
    few, many = [await calls_of_a_new_search(trials) for trials in (10, 10_000)]
    assert many <= few + 1_000  # a busy machine has a few more; a call for each trial has 10,000


async def calls_of_a_new_search(trials: int) -> int:
    """Calls until the first of so many random trials are begun."""
    search = {"method": "random", "parameters": {"x": {"min": 0.0, "max": 1.0}}}
    spec = {"search": search, "trials": trials, "parallelism": 4}
    async with Fleet() as fleet:
        commit.apply_manifests(fleet.store, [sweep(spec)], fleet.clock.now_s())
        with Calls() as calls:
            fleet.engine.ticks.make()
        await fleet.settle()
        assert fleet.local.working() == [0, 1, 2, 3]
        return calls.count


def sweep(spec: dict[str, Any]) -> Manifest:
    checked = KINDS["Sweep"].spec.model_validate({"template": {"python": "pass"}, **spec})
    about = Metadata.model_validate({"name": "sw"})
    return Manifest("Sweep", "sw", about, checked, "test.yaml", 1)
