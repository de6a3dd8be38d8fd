"""The sweep of sandboxes without a record: it ends those that nobody can have a record of, and no
other.
"""

from __future__ import annotations

from dataclasses import replace

from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.engine.shared.engine_state import EngineSettings
from tests.unit.engine.fake_world import CONTRACT, Box, Fleet, tasks

BOUND_S = 10.0
GRACE_S = BOUND_S + EngineSettings().sweep_grace_s


async def sweep_once(fleet: Fleet) -> int:
    found = await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
    await fleet.settle()
    return found


async def test_a_sandbox_is_no_orphan_before_its_record_must_be_there() -> None:
    async with Fleet(contract=replace(CONTRACT, visibility_bound_s=BOUND_S)) as fleet:
        fleet.local.boxes["made"] = Box("made", "uid", fleet.clock.time_s)
        await fleet.later(GRACE_S - 1)
        assert (await sweep_once(fleet), fleet.local.boxes["made"].alive) == (0, True)
        await fleet.later(2)
        assert (await sweep_once(fleet), fleet.local.boxes["made"].alive) == (1, False)


async def test_sandboxes_of_an_object_that_cannot_be_read_are_no_orphans() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
        fleet.spoil("job", '{"made": "by a newer version"}')
        await fleet.crash()
        await fleet.later(10 * GRACE_S)
        assert fleet.status("job")["reason"] == "Quarantined"
        assert await sweep_once(fleet) == 0
        assert fleet.local.working() == [0, 1]
