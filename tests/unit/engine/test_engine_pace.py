"""How far apart turns are: with few live runs each event is answered at once; with many, several
share a turn.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from fleetctl.engine.settings import Settings
from tests.unit.engine.fake_world import Fleet, tasks

EVENT_LOOP_TURNS = 50


@pytest.mark.parametrize(("few", "answered"), [(2, True), (1, False)])
def test_an_event_waits_for_others_only_while_many_runs_live(few: int, answered: bool) -> None:
    async def scene() -> None:
        pace = Settings(few_live=few, turn_gap_each_s=3600.0, turn_gap_max_s=3600.0)
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
