"""Volumes in the engine: users, the end of their data, and the sweep of what has no record."""

from __future__ import annotations

from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.engine.shared.engine_state import EngineSettings
from tests.unit.engine.fake_world import HANG, Box, Fleet, tasks

DOOMED = {"deletionPolicy": "Delete"}
SETTINGS = EngineSettings(sweep_grace_s=30.0)


def user(name: str = "data", **fields: Any) -> dict[str, Any]:
    template = {"python": "pass", "volumes": [{"name": name, "mountPath": "/data"}]}
    return tasks(1, template=template, **fields)


async def test_a_volume_is_made_and_ready() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", {})
        assert fleet.local.volumes == {"data"}
        assert fleet.status("data")["phase"] == "Ready"


async def test_a_volume_that_cannot_be_made_says_why_at_once_and_is_tried_again() -> None:
    async with Fleet() as fleet:
        fleet.local.script["ensure_volume"] = [Refused("the disk is full")]
        await fleet.apply("Volume", "data", {})
        status = fleet.status("data")
        assert (status["phase"], status["message"]) == ("Pending", "the disk is full")
        await fleet.later(5)
        assert fleet.status("data")["phase"] == "Ready"


async def test_a_volume_that_a_template_names_is_made_and_kept() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", user())
        assert fleet.names() == ["data", "job"]
        await fleet.delete("BatchJob", "job")
        assert fleet.names() == ["data"]
        assert fleet.local.volumes == {"data"}


async def test_the_data_goes_as_soon_as_the_last_user_is_over() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", DOOMED)
        await fleet.apply("BatchJob", "job", user())
        await fleet.delete("Volume", "data")
        assert fleet.status("data")["message"] == "still used by batchjob/job"
        assert fleet.local.volumes == {"data"}
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.local.volumes == set()
        assert fleet.names() == ["job"]


async def test_the_data_goes_as_soon_as_the_last_user_is_deleted() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", DOOMED)
        await fleet.apply("BatchJob", "job", user())
        await fleet.delete("Volume", "data")
        await fleet.delete("BatchJob", "job")
        assert (fleet.names(), fleet.local.volumes) == ([], set())


async def test_a_word_in_a_spec_makes_no_user_of_a_volume() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", DOOMED)
        spec = tasks(1, tasks={"items": [{"name": "data", "volumes": ["data"]}]})
        del spec["completions"]
        await fleet.apply("BatchJob", "job", spec)
        await fleet.delete("Volume", "data")
        assert fleet.local.volumes == set()


async def test_a_removal_that_fails_is_tried_again() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", DOOMED)
        fleet.local.script["remove_volume"] = [ConnectionError("reset")]
        await fleet.delete("Volume", "data")
        assert fleet.names() == ["data"]
        await fleet.later(5)
        assert (fleet.names(), fleet.local.volumes) == ([], set())


async def test_a_deleted_volume_never_takes_the_data_of_a_new_one_of_its_name() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", DOOMED)
        await fleet.apply("BatchJob", "job", user())
        await fleet.delete("Volume", "data")
        await fleet.apply("Volume", "data", DOOMED)
        await fleet.delete("BatchJob", "job")
        await fleet.later(100)
        assert fleet.names() == ["data"]
        assert fleet.local.volumes == {"data"}
        assert fleet.status("data")["phase"] == "Ready"


async def test_a_new_volume_waits_for_the_removal_of_the_one_before_it() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", DOOMED)
        fleet.local.script["remove_volume"] = [HANG]
        await fleet.delete("Volume", "data")
        await fleet.apply("Volume", "data", {})
        assert fleet.status("data")["message"] == (
            "the deleted volume of this name is still being removed"
        )
        await fleet.crash()
        await fleet.settle()
        assert fleet.names() == ["data"]
        assert fleet.status("data")["phase"] == "Ready"


async def test_a_volume_that_moves_is_made_at_its_new_place() -> None:
    async with Fleet(("local", "mars")) as fleet:
        await fleet.apply("Volume", "data", {})
        await fleet.apply("Volume", "data", {"provider": "mars"})
        assert fleet.providers["mars"].volumes == {"data"}


# -- the sweep -------------------------------------------------------------------------------------


def orphan(fleet: Fleet, name: str) -> None:
    fleet.local.boxes[name] = Box(name, "nobody", fleet.clock.now_s())


async def test_a_sandbox_without_a_record_is_stopped_after_a_grace_time() -> None:
    async with Fleet(settings=SETTINGS) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        orphan(fleet, "stray")
        await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
        assert fleet.local.boxes["stray"].alive
        await fleet.later(fleet.local.contract.call_deadline_s + 31)
        assert (
            await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
            == 1
        )
        assert not fleet.local.boxes["stray"].alive
        assert fleet.local.working() == [0]


async def test_the_sweep_leaves_the_runs_of_an_unreadable_object_alone() -> None:
    async with Fleet(settings=SETTINGS) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        orphan(fleet, "stray")
        fleet.spoil("job", '{"from":"the future"}')
        await fleet.later(fleet.local.contract.call_deadline_s + 31)
        assert (
            await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
            == 1
        )
        assert fleet.local.working() == [0]


async def test_an_orphan_that_cannot_be_stopped_does_not_shield_the_others() -> None:
    async with Fleet(settings=SETTINGS) as fleet:
        orphan(fleet, "first")
        orphan(fleet, "second")
        await fleet.later(fleet.local.contract.call_deadline_s + 31)
        fleet.local.script["stop"] = [ConnectionError("reset")]
        await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
        assert fleet.local.boxes["first"].alive
        assert not fleet.local.boxes["second"].alive


async def test_one_sweep_stops_no_more_than_its_cap() -> None:
    async with Fleet(settings=EngineSettings(sweep_stops_max=2)) as fleet:
        for number in range(5):
            orphan(fleet, f"stray-{number}")
        await fleet.later(fleet.local.contract.call_deadline_s + 31)
        await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
        assert sum(box.alive for box in fleet.local.boxes.values()) == 3
