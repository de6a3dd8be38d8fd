"""Starts in two phases: the sandbox first, its work once the sandbox's handle is durable."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import RunState
from tests.unit.engine.fake_world import CONTRACT, HANG, Fleet, tasks

TWO_PHASE = replace(CONTRACT, two_phase=True)


async def test_the_work_begins_once_the_handle_is_durable() -> None:
    async with Fleet(contract=TWO_PHASE) as fleet:
        fleet.local.script["start"] = [None, HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        [run] = fleet.runs("job")
        assert (run.state, run.handle) == (RunState.STARTING, f"h-{run.name}")
        assert fleet.local.orders == {}
        await fleet.crash()
        await fleet.settle()
        assert fleet.local.orders[run.name].handle == run.handle
        assert fleet.runs("job")[0].state is RunState.RUNNING


async def test_a_lost_answer_to_the_first_phase_begins_nothing() -> None:
    async with Fleet(contract=TWO_PHASE) as fleet:
        fleet.local.script["start"] = [ConnectionError("no answer")]
        await fleet.apply("BatchJob", "job", tasks(1))
        assert (fleet.local.orders, fleet.runs("job")[0].handle) == ({}, "")
        await fleet.later(5)
        assert fleet.local.working() == [0]


async def test_the_next_task_of_an_open_sandbox_begins_with_the_handle_of_the_one_before() -> None:
    async with Fleet(contract=TWO_PHASE) as fleet:
        job = tasks(2, parallelism=1, sandbox={"reuse": 2})
        await fleet.apply("BatchJob", "job", job)
        first = fleet.local.run(0)
        fleet.local.finish(0)
        await fleet.settle()
        second = fleet.local.orders[fleet.local.run(1)]
        assert (second.sandbox, second.handle) == (first, f"h-{first}")


async def test_a_push_about_a_start_that_waits_makes_it_try_at_once() -> None:
    async with Fleet(contract=TWO_PHASE) as fleet:
        queued = Unavailable("no A100 is free", reason="Queued", retry_after_s=60.0)
        fleet.local.script["start"] = [queued]
        await fleet.apply("BatchJob", "job", tasks(1))
        [run] = fleet.runs("job")
        assert (fleet.status("job")["reason"], fleet.local.boxes) == ("Queued", {})
        fleet.local.notify("nobody-knows-this-run")
        fleet.local.notify(run.name)
        await fleet.settle()
        assert fleet.local.working() == [0]
