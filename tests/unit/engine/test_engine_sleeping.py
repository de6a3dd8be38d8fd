"""A finished object costs nothing until it is asked for: it is in the store alone."""

from __future__ import annotations

import pytest

from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from tests.unit.engine.fake_world import Fleet, tasks
from tests.unit.engine.test_engine_effort import Calls

UNCACHED = {"cache": {"policy": "Never"}}


async def finish(fleet: Fleet, name: str, **fields: object) -> None:
    await fleet.apply("BatchJob", name, tasks(1, **UNCACHED, **fields))
    fleet.local.finish(0, of=f"batchjob/{name}")
    await fleet.settle()
    assert fleet.status(name)["phase"] == "Succeeded"


def kept(fleet: Fleet) -> list[str]:
    """The names of what the engine holds in memory."""
    return sorted(track.resource.name for track in fleet.engine.state.tracks.values())


async def scan(fleet: Fleet) -> None:
    fleet.engine.sleepers.look(fleet.clock.now_s())
    await fleet.settle()


async def test_what_is_over_is_in_the_store_alone_until_somebody_wishes_more() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "job")
        assert (kept(fleet), fleet.engine.state.owner_of, len(fleet.engine.state.queue)) == (
            [],
            {},
            0,
        )
        await fleet.apply("BatchJob", "job", tasks(2, **UNCACHED))
        assert fleet.local.working() == [1]


async def test_neither_a_restart_nor_a_scan_reads_what_is_over() -> None:
    """Counted in function calls and in statements, for none and for 30."""
    calls: list[tuple[int, int]] = []
    statements: list[list[str]] = []
    for over in (0, 30):
        async with Fleet() as fleet:
            for number in range(over):
                await finish(fleet, f"over-{number}")
            await fleet.apply("BatchJob", "live", tasks(2, **UNCACHED))
            await fleet.crash()
            asked: list[str] = []
            fleet.database.state.set_trace_callback(asked.append)
            with Calls() as restart:
                fleet.engine.ticks.load()
            assert kept(fleet) == ["live"]
            await fleet.settle()
            fleet.engine.sleepers.look(fleet.clock.now_s())
            with Calls() as look:
                fleet.engine.ticks.make()
                fleet.engine.ticks.make()
            fleet.database.state.set_trace_callback(None)
            assert fleet.local.working() == [0, 1]
            calls.append((restart.count, look.count))
            statements.append(asked)
    assert calls[0] == calls[1]
    assert len(statements[0]) == len(statements[1])


async def test_what_its_runs_left_is_freed_on_time_also_by_the_next_controller() -> None:
    async with Fleet() as fleet:
        for name, ttl_s in (("soon", 100), ("later", 200), ("latest", 300)):
            await finish(fleet, name, ttlSecondsAfterFinished=ttl_s)
        uid = {name: fleet.row(name).uid for name in fleet.names()}
        assert kept(fleet) == []
        await fleet.later(99)
        assert fleet.local.freed == []
        assert fleet.engine.sleepers.look_at_s == pytest.approx(fleet.clock.now_s() + 1)
        await fleet.later(1)
        assert fleet.local.freed == [(uid["soon"], True)]
        assert fleet.status("soon")["scratchFreed"] is True
        await fleet.crash()
        assert kept(fleet) == []
        assert fleet.engine.sleepers.look_at_s == pytest.approx(fleet.clock.now_s() + 100)
        await fleet.later(99)
        assert len(fleet.local.freed) == 1
        await fleet.crash()
        await fleet.later(50)  # it was due while nobody looked
        assert fleet.local.freed[1:] == [(uid["later"], True)]
        await fleet.later(100)
        assert fleet.local.freed[2:] == [(uid["latest"], True)]
        assert (kept(fleet), fleet.engine.sleepers.look_at_s) == ([], None)


async def test_what_cannot_be_freed_now_stays_awake_until_it_is() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "job", ttlSecondsAfterFinished=10)
        fleet.local.script["remove_scratch"] = [OSError("busy")] * 2
        await fleet.later(10)
        assert (fleet.local.freed, kept(fleet)) == ([], ["job"])
        await fleet.crash()
        assert kept(fleet) == ["job"]
        for _ in range(5):
            await fleet.later(60)
        assert (len(fleet.local.freed), kept(fleet)) == (1, [])


async def test_a_label_wakes_it_and_it_sleeps_on() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "job")
        await fleet.apply("BatchJob", "job", tasks(1, **UNCACHED), team="rlm")
        assert fleet.row("job").labels == {"team": "rlm"}
        assert (kept(fleet), list(fleet.store.sleep.awake(1e9))) == ([], [])
        await fleet.crash()
        assert kept(fleet) == []


async def test_a_deleted_one_wakes_and_goes() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "job")
        uid = fleet.row("job").uid
        await fleet.delete("BatchJob", "job")
        assert (fleet.names(), kept(fleet)) == ([], [])
        assert fleet.local.freed == [(uid, False)]


async def test_a_deletion_that_a_crash_overtakes_is_found_by_the_next_controller() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "job")
        fleet.local.script["remove_scratch"] = [OSError("busy")]
        await fleet.delete("BatchJob", "job")
        await fleet.crash()
        await fleet.later(60)
        assert fleet.names() == []


async def test_a_retry_wakes_it() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "job")
        requeue_units(fleet.store, "BatchJob", "job", RetryChoice("all"), fleet.clock.now_s())
        await fleet.settle()
        assert (fleet.local.working(), kept(fleet)) == ([0], ["job"])


async def test_the_scan_finds_what_memory_lost() -> None:
    async with Fleet() as fleet:
        await finish(fleet, "over")
        await fleet.apply("BatchJob", "job", tasks(1, suspend=True))
        fleet.engine.state.tracks.let_go(fleet.row("job").uid)
        fleet.engine.state.queue.discard(fleet.row("job").uid)
        await scan(fleet)
        assert kept(fleet) == ["job"]


async def test_a_turn_that_is_undone_loses_no_sleeper() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, ttlSecondsAfterFinished=100))
        fleet.fail_commits = 1
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Running"
        await fleet.later(1)
        assert (fleet.status("job")["phase"], kept(fleet)) == ("Succeeded", [])
        await fleet.later(100)
        assert len(fleet.local.freed) == 1


async def test_a_volume_goes_although_one_that_is_over_names_it() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", {"deletionPolicy": "Delete"})
        spec = tasks(1, **UNCACHED)
        spec["template"] = {**spec["template"], "volumes": [{"name": "data", "mountPath": "/data"}]}
        await fleet.apply("BatchJob", "job", spec)
        await fleet.delete("Volume", "data")
        assert fleet.names() == ["data", "job"]
        fleet.local.finish(0)
        await fleet.settle()
        assert (fleet.names(), kept(fleet)) == (["job"], [])
        await fleet.crash()
        await fleet.later(60)
        assert fleet.names() == ["job"]
