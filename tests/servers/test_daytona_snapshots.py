"""Snapshots that we make at Daytona: whose each is, what a lost answer does, who deletes them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.daytona.assets import daytona_snapshots
from fleetctl.providers.daytona.assets.daytona_snapshots import SnapshotScope
from fleetctl.providers.daytona.daytona_orphans import DaytonaOrphans
from fleetctl.providers.remote.sandboxes import sandbox_names
from tests.contracts.daytona_worlds import DaytonaWorld, Play
from tests.contracts.provider_worlds import eventually, script


def made(world: DaytonaWorld, store: str = "") -> list[str]:
    """Names of the snapshots of this world's store, or of another."""
    tag = sandbox_names.tag_of(f"{store or world.store_id}-{world.salt}")
    found = [one["name"] for one in world.emulator.state()["snapshots"]]
    return [name for name in found if daytona_snapshots.store_of(name) == tag]


def test_a_lost_answer_of_a_build_deletes_nothing_and_ends_no_start(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        fault = world.emulator.fault(operation="createSnapshot", when="after", drop=True, count=1)
        image = {"run": ["sleep 1 && echo slow >/slow"]}
        order = world.order(script("cat /slow", image=image))
        try:
            await world.provider.start(order)
        except Unavailable as error:
            assert "cannot be built" in str(error)
        assert world.emulator.faults()[0]["met"] == 1
        world.emulator.remove_faults(fault)
        built = made(world)
        assert len(built) == 1

        async def served() -> bool:
            try:
                await world.begin(order)
            except Unavailable:
                return False
            return True

        await eventually(served, "the build that went on is found")
        await world.ended(RunRef(order.run, order.run, "", 0, order.uid))
        assert made(world) == built
        assert world.emulator.count("removeSnapshot") == 0

    daytona_alone(tale)


def test_names_keep_stores_accounts_and_targets_apart(daytona_alone: Play) -> None:
    scopes = [
        SnapshotScope("store-a", "daytona"),
        SnapshotScope("store-b", "daytona"),
        SnapshotScope("store-a", "team_x"),
        SnapshotScope("store-a", "daytona", "eu"),
    ]
    assert len({scope.name("key") for scope in scopes}) == len(scopes)
    for scope in scopes:
        assert daytona_snapshots.store_of(scope.name("key")) == sandbox_names.tag_of(scope.store)
        assert daytona_snapshots.key_of(scope.name("key")) == "key"
    assert daytona_snapshots.store_of("fleetctl-somebodys-own") == ""

    async def tale(world: DaytonaWorld) -> None:
        image = {"run": ["echo shared"]}
        assert (await world.run(script("true", image=image))).ok
        [ours] = made(world)
        world.provider = world.again("store-b")
        assert (await world.run(script("true", image=image), run="run-1")).ok
        assert made(world) == [ours]
        assert len(made(world, "store-b")) == 1

    daytona_alone(tale)


def test_orphans_tell_snapshots_and_who_needs_them_and_delete_one(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        assert (await world.run(script("true", image={"run": ["echo one"]}))).ok
        [name] = made(world)
        orphans = DaytonaOrphans(world.directory / "home", built_in("daytona"))
        found = {one.handle: one for one in await orphans.find_all() if one.kind == "snapshot"}
        assert found[name].users == ("job-uid-1",)
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        found = {one.handle: one for one in await orphans.find_all() if one.kind == "snapshot"}
        assert found[name].users == ()
        assert found[name].store == sandbox_names.tag_of(f"{world.store_id}-{world.salt}")
        await orphans.remove(found[name])
        await orphans.remove(found[name])
        assert made(world) == []
        await orphans.close()

    daytona_alone(tale)


def test_what_no_object_needs_and_nothing_used_for_a_week_is_collected(
    daytona_alone: Play,
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        await world.run(script("true", image={"run": ["echo needed"]}))
        await world.run(script("true", image={"run": ["echo left"]}), run="r1", uid="uid-2")
        other = world.again("store-b")
        ref = await world.begin(world.order(script("true"), run="r2", uid="uid-3"), other)
        world.provider, mine = other, world.provider
        await world.ended(ref)
        await world.provider.remove_scratch("uid-3", keep_logs=False)
        world.provider = mine
        await world.provider.remove_scratch("uid-2", keep_logs=False)
        before = set(made(world))
        client = await mine._connection.client()
        scope = SnapshotScope(f"{world.store_id}-{world.salt}", "daytona")
        jobs = Path(world.directory / "home" / "daytona" / "jobs")
        now_s = time.time()
        assert await daytona_snapshots.collect_unused(client, scope, jobs, now_s=now_s) == []
        week_s = daytona_snapshots.KEPT_UNUSED_S + 3600
        [gone] = await daytona_snapshots.collect_unused(client, scope, jobs, now_s=now_s + week_s)

        async def is_gone() -> bool:
            return set(made(world)) == before - {gone}

        await eventually(is_gone, "the unneeded one is deleted")
        assert len(made(world, "store-b")) == 1

    daytona_alone(tale)


def test_room_is_made_of_what_is_ours_and_unneeded_alone(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        other = world.again("store-b")
        ref = await world.begin(world.order(script("true"), run="r2", uid="uid-3"), other)
        world.provider, mine = other, world.provider
        await world.ended(ref)
        await world.provider.remove_scratch("uid-3", keep_logs=False)
        world.provider = mine
        world.emulator.set(quota={"snapshots": 1})
        order = world.order(script("true", image={"run": ["echo full"]}))
        for _ in range(2):
            try:
                await world.provider.start(order)
            except Unavailable as error:
                told = error
            await asyncio.sleep(0)
        assert (told.reason, told.account) == ("Quota", True)
        assert "orphans" in told.hint
        assert len(made(world, "store-b")) == 1

    daytona_alone(tale)
