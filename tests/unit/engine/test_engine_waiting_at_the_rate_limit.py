"""A start that waits for its turn at the rate limiter while its spec or a limit changes: when its
turn comes, it obeys what holds by then.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import RunState
from fleetctl.providers.contract.base import RunRequest
from tests.unit.engine.fake_world import CONTRACT, HANG, Fleet, tasks

LATER_S = 5.0
ONE_CALL = replace(CONTRACT, calls_at_once=1, visibility_bound_s=1e4)
ONE_START = replace(CONTRACT, calls_at_once=2)  # and one call that is none


@pytest.mark.parametrize("lowered", ["parallelism", "maxConcurrent"])
async def test_a_start_in_line_is_not_asked_for_above_a_limit_lowered_meanwhile(
    lowered: str,
) -> None:
    async with Fleet(contract=ONE_CALL) as fleet:
        # The first start waits; the second is asked for, and no answer comes.
        fleet.local.script["start"] = [Unavailable("busy", retry_after_s=LATER_S), HANG]
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
        await fleet.later(LATER_S)  # the first is in line again, behind the second
        assert fleet.local.asked == 2
        if lowered == "parallelism":
            await fleet.apply("BatchJob", "job", tasks(2, parallelism=1))
        else:
            await fleet.apply("Provider", "local", {"limits": {"maxConcurrent": 1}})
        # Its call is taken back, so the line moves; whether it made a sandbox is not known yet.
        await fleet.later(LATER_S)
        assert sorted(str(run.state) for run in fleet.runs("job")) == ["Starting", "Stopping"]
        assert fleet.local.asked == 2


async def test_a_start_in_line_is_not_made_for_a_run_that_is_over_meanwhile() -> None:
    async with Fleet(contract=ONE_START) as fleet:
        asked: list[str] = []
        released, start = asyncio.Event(), fleet.local.start

        async def starts(order: RunRequest) -> str:
            asked.append(order.run)
            handle = await start(order)
            if len(asked) <= 2:
                raise ConnectionError("no answer")
            await released.wait()
            return handle

        fleet.local.start = starts  # type: ignore[method-assign]
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
        assert fleet.local.working() == [0, 1]
        await fleet.later(LATER_S)  # both are asked for again: one call waits for the other
        assert len(asked) == 3
        [second] = [it for it in fleet.runs("job") if it.name != asked[-1]]
        fleet.local.finish(second.index)
        await fleet.settle()
        states = {it.name: it.state for it in fleet.runs("job")}
        assert states[second.name] is RunState.SUCCEEDED
        # The provider has forgotten what ended; to begin it would be to begin it again.
        del fleet.local.orders[second.name], fleet.local.boxes[second.name]
        released.set()
        await fleet.settle()
        assert second.name not in fleet.local.boxes
        assert fleet.local.working() == [1 - second.index]
