"""A start that waits for its turn at the rate limiter while its spec or a limit changes: when its
turn comes, it obeys what holds by then.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.common.errors import Unavailable
from tests.unit.engine.fake_world import CONTRACT, HANG, Fleet, tasks

LATER_S = 5.0
ONE_CALL = replace(CONTRACT, calls_at_once=1, visibility_bound_s=1e4)


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
