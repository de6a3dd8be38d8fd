"""How far apart turns are: with few live runs each event is answered at once; with many, several
share a tick. News that nothing waits for makes none of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from fleetctl.controllers.model import Metric
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.engine.shared.messages import StartReplied
from tests.unit.engine.fake_world import Fleet, tasks

EVENT_LOOP_TURNS = 50


@pytest.mark.parametrize(("few", "answered"), [(2, True), (1, False)])
def test_an_event_waits_for_others_only_while_many_runs_live(few: int, answered: bool) -> None:
    async def scene() -> None:
        pace = EngineSettings(few_live=few, tick_gap_each_s=3600.0, tick_gap_max_s=3600.0)
        async with Fleet(settings=pace) as fleet:
            await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
            assert fleet.local.working() == [0, 1]
            running = asyncio.ensure_future(fleet.engine.run())
            try:
                await asyncio.sleep(0)
                fleet.local.finish(0)
                fleet.engine.notify(fleet.local.run(0))
                for _ in range(EVENT_LOOP_TURNS):
                    await asyncio.sleep(0)
                assert (fleet.status("job").get("succeeded", 0) == 1) is answered
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("few", "wait_s", "alone"),
    [(2, 3600.0, True), (1, 3600.0, False), (1, 0.0, True)],
    ids=["few live", "many live", "many live, and the wait has ended"],
)
def test_that_a_run_has_begun_is_written_with_other_news_or_a_little_later(
    few: int, wait_s: float, alone: bool
) -> None:
    async def scene() -> None:
        pace = EngineSettings(few_live=few, tick_gap_max_s=0.0, news_wait_s=wait_s)
        async with Fleet(settings=pace) as fleet:
            await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
            running = asyncio.ensure_future(fleet.engine.run())
            try:
                await _spin()
                fleet.engine.state.inbox.tell(StartReplied(fleet.local.run(0), "new", begun=True))
                await _spin()
                assert (fleet.runs("job")[0].handle == "new") is alone
                fleet.local.finish(1)
                fleet.engine.notify(fleet.local.run(1))
                await _spin()
                assert fleet.status("job")["succeeded"] == 1
                assert fleet.runs("job")[0].handle == "new"
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    asyncio.run(scene())


async def test_a_run_that_reports_all_the_time_is_looked_at_in_steps_and_nothing_is_lost() -> None:
    few, gap_s = 2, 64.0
    async with Fleet(settings=EngineSettings(few_reports=few, report_gap_s=gap_s)) as fleet:
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
        name = fleet.local.run(0)

        async def report() -> int:
            told = fleet.local.metrics[name]
            told.append(Metric(len(told), 0, "loss", 1.0, fleet.clock.now_s()))
            fleet.engine.notify(name)
            await fleet.settle()
            return len(told) - len(fleet.store.runs.metrics_of(name))

        assert [await report() for _ in range(few + 2)] == [0, 0, 1, 2]
        await fleet.later(1024 - fleet.clock.now_s())  # a step
        assert await report() == 0
        await fleet.later(1.0)
        assert await report() == 1
        await fleet.later(few * gap_s)  # a pause: it talks no more
        assert await report() == 0
        await fleet.later(1.0)
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("job")["succeeded"] == 1


async def _spin() -> None:
    for _ in range(EVENT_LOOP_TURNS):
        await asyncio.sleep(0)
