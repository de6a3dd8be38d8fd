"""Images, volumes and files on Daytona: the real SDK against the emulator, whose ground
truth says what was built and what is still there.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.controllers.model import WandbTrial
from fleetctl.controllers.wandb import observe_template
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.contract.volume_files import FileCopy
from fleetctl.providers.daytona.assets import daytona_snapshots
from fleetctl.providers.daytona.assets.daytona_volumes import DaytonaFiles
from fleetctl.providers.remote import recipes
from fleetctl.providers.rundir.build_logs import logs_of
from tests.contracts.daytona_worlds import DaytonaWorld, Play
from tests.contracts.provider_worlds import command, eventually, python, script


def ours(world: DaytonaWorld) -> list[str]:
    found = world.emulator.state()["snapshots"]
    return [one["name"] for one in found if one["name"].startswith(daytona_snapshots.PREFIX)]


# -- images ----------------------------------------------------------------------------------------


def test_an_image_is_built_once_for_all_runs_and_its_log_is_kept(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        image = {"run": ["echo building-$((6 * 7)) && echo made >/made"], "env": {"WORD": "hello"}}
        template = command("sh", "-c", "cat /made; echo $WORD", image=image)
        refs = await asyncio.gather(
            *(world.start(template, run=f"run-{number}", index=number) for number in range(4))
        )
        for ref in refs:
            assert (await world.ended(ref)).ok
            assert await world.log(ref) == b"made\nhello\n"
        builds = [one for one in world.emulator.state()["builds"] if one["built"]]
        assert len(builds) == len(ours(world))
        [log] = logs_of(world.directory / "home", "uid-1")
        assert "building-42" in log.read_text()
        await world.provider.remove_scratch("uid-1", keep_logs=True)
        assert "building-42" in log.read_text()
        # The next controller finds what this one built.
        before = world.emulator.count("createSnapshot")
        ref = await world.begin(world.order(template, run="run-9"), world.again())
        assert (await world.ended(ref)).ok
        assert world.emulator.count("createSnapshot") == before

    daytona_alone(tale)


def test_a_build_that_fails_is_refused_with_the_end_of_its_log_and_may_be_mended(
    daytona_alone: Play,
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        order = world.order(command("true", image={"run": ["echo the reason is here; exit 3"]}))
        for _ in range(2):
            with pytest.raises(Refused, match="the reason is here") as caught:
                await world.provider.start(order)
            assert "the whole log is" in caught.value.hint
        assert world.made() == []
        states = [one["state"] for one in world.emulator.state()["snapshots"]]
        assert "build_failed" not in states

    daytona_alone(tale)


def test_a_build_that_takes_long_makes_room_and_is_told(
    daytona_alone: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "PATIENCE_S", 0.2)

    async def tale(world: DaytonaWorld) -> None:
        order = world.order(command("true", image={"run": ["sleep 2; echo slowly"]}))
        with pytest.raises(Unavailable) as caught:
            await world.provider.start(order)
        assert caught.value.reason == "Building"

        async def built() -> bool:
            try:
                return bool(await world.provider.start(order))
            except Unavailable:
                return False

        await eventually(built, "it was built")
        assert (await world.ended(await world.begin(order))).ok

    daytona_alone(tale)


def test_what_is_not_whole_is_rounded_up_and_said(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        resources = {"cpu": "1500m", "memory": "1.5Gi", "disk": "5Gi"}
        ref = await world.start(python("pass", resources=resources))
        seen = await world.ended(ref)
        assert seen.note == "rounded up: cpu 1.5 to 2, memory 1.5 to 2 GiB"
        [box] = world.made()
        size = box["resources"]
        assert (size["cpu"], size["memory"], size["disk"], size["gpu"]) == (2, 2, 5, 0)
        whole = {"cpu": 2.0, "memory": 2 * 1024**3, "disk": 5 * 1024**3}
        rate = world.provider.usd_per_s
        assert rate(python("pass", resources=resources)) == rate(python("pass", resources=whole))
        share = {"name": "db", "script": "sleep 60", "resources": {"cpu": 1, "memory": "1Gi"}}
        work = {"cpu": 1, "memory": "1Gi", "disk": "5Gi"}
        beside = python("pass", resources=work, services=[share])
        assert rate(beside) == rate(python("pass", resources=whole))

    daytona_alone(tale)


def test_a_gpu_is_asked_for_by_its_sort_in_a_sandbox_that_goes_when_it_stops(
    daytona_alone: Play,
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        await world.run(command("true", resources={"gpu": "h200:1"}))
        [box] = world.made()
        assert (box["resources"]["gpu"], box["resources"]["gpu_type"]) == (1, "H200")
        assert box["intervals"]["delete"] == 0
        with pytest.raises(Refused, match="`A100`, which Daytona does not have"):
            await world.provider.start(
                world.order(command("true", resources={"gpu": "A100"}), run="b")
            )

    daytona_alone(tale)


def test_an_image_of_a_registry_runs_commands_without_python(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        template = script("echo begun; sleep 0.6; echo over", image="alpine:3.20")
        ref = await world.start(template, secrets={"TOKEN": "hush-hush"})
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"begun\nover\n"
        [box] = world.made()
        assert box["labels"]["guest"] == "posix"

    daytona_alone(tale)


def test_in_an_image_of_a_registry_wandb_is_told_the_parameters_too(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        text = "import os; print(open(os.environ['WANDB_SWEEP_PARAM_PATH']).read())"
        wandb = WandbTrial("lr", "", "", only=False)
        template = observe_template(command("python3", "-c", text, image="python:3.12"), wandb)
        ref = await world.start(template, params={"lr": 3e-05}, wandb=wandb)
        assert (await world.ended(ref)).ok
        assert b"3.0e-05" in await world.log(ref)
        [box] = world.made()
        assert box["labels"]["guest"] == "python"

    daytona_alone(tale)


def test_a_snapshot_is_started_as_it_is_with_the_guest_brought_to_it(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        image = {"snapshot": "daytona-medium"}
        ref = await world.start(python("SUBMIT(a=1)", image=image))
        assert (await world.ended(ref)).result == '{"a":1}'
        ref = await world.start(script("echo hello", image=image), run="run-1")
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"hello\n"
        assert {one["snapshot"] for one in world.made()} == {"daytona-medium"}

    daytona_alone(tale)


def test_a_snapshot_that_daytona_put_to_sleep_is_woken(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        from daytona import AsyncDaytona, CreateSnapshotParams
        from daytona_api_client_async import SnapshotsApi

        ran = {"run": ["echo once >/once"]}
        before = ours(world)
        assert (await world.run(script("cat /once", image=ran))).ok
        [own] = [name for name in ours(world) if name not in before]
        async with AsyncDaytona() as client:
            await client.snapshot.create(CreateSnapshotParams(name="sleeps", image="debian:12"))
            for name in ("sleeps", own):
                one = await client.snapshot.get(name)
                await SnapshotsApi(client._api_client).deactivate_snapshot(one.id)
        world.provider = world.again()
        for run, image in (("run-1", {"snapshot": "sleeps"}), ("run-2", ran)):
            assert (await world.run(script("true", image=image), run=run)).ok
        states = {one["name"]: one["state"] for one in world.emulator.state()["snapshots"]}
        assert (states["sleeps"], states[own]) == ("active", "active")
        async with AsyncDaytona() as client:
            await client.snapshot.delete(await client.snapshot.get("sleeps"))

    daytona_alone(tale)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"image": {"snapshot": "no-such-thing"}}, "`no-such-thing`, which Daytona does not have"),
        ({"image": {"snapshot": "daytona-small"}, "resources": {"cpu": 2}}, "has its own"),
        ({"image": {"registry": "a/b:1", "python": "3.12"}}, "adds no Python to images"),
        ({"resources": {"cpu": 64}}, "exceeds maximum allowed per sandbox"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_is_made(
    daytona_alone: Play, fields: dict[str, Any], says: str
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        with pytest.raises(Refused, match=says) as caught:
            await world.provider.start(world.order(command("true", **fields)))
        assert caught.value.hint
        assert world.made() == []

    daytona_alone(tale)


def test_the_oldest_of_our_snapshots_makes_room_for_a_new_one(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        await world.run(command("true", image={"run": ["echo one"]}))
        before = ours(world)
        world.emulator.set(quota={"snapshots": len(before)})
        order = world.order(command("true", image={"run": ["echo two"]}), run="run-1")

        async def built() -> bool:
            try:
                return bool(await world.provider.start(order))
            except Unavailable as error:
                assert error.reason == "Quota"
                return False

        await eventually(built, "there was room")
        assert (await world.ended(await world.begin(order))).ok
        assert len(ours(world)) == len(before)

    daytona_alone(tale)


# -- volumes and their files -----------------------------------------------------------------------


def test_a_volume_is_mounted_with_its_links_and_its_files_are_copied_both_ways(
    daytona_alone: Play, tmp_path: Path
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        mount = {"name": "shared", "mountPath": "/home/daytona/memory", "links": ["/opt/memory"]}
        text = "echo kept >/opt/memory/a; cd $FLEETCTL_VOLUME_SHARED; mkdir d\\ e; echo 2 >d\\ e/b"
        assert (await world.run(script(text, volumes=[mount]))).ok
        files, told = DaytonaFiles(tmp_path, built_in("daytona")), []
        assert [one.path for one in await files.entries("shared", "")] == ["a", "d e"]
        everything = await files.entries("shared", "", recursive=True)
        assert [(one.path, one.size) for one in everything] == [("a", 5), ("d e", 0), ("d e/b", 2)]
        out = tmp_path / "out"
        await files.get("shared", [FileCopy(out, "d e/b", 2)], tell=told.append)
        assert (out.read_text(), told) == ("2\n", [2])
        out.write_text("from here")
        await files.put("shared", [FileCopy(out, "new/deep/c", 9)], tell=told.append)
        assert [one.path for one in await files.entries("shared", "new/deep/c")] == ["new/deep/c"]
        with pytest.raises(Refused, match="is a directory"):
            await files.remove("shared", "new")
        await files.remove("shared", "new", recursive=True)
        await files.remove("shared", "a")
        assert [one.path for one in await files.entries("shared", "")] == ["d e"]
        for path in ("nope", "d e/nope"):
            with pytest.raises(NotFound, match="volume/shared has no"):
                await files.entries("shared", path)
        with pytest.raises(NotFound):
            await files.get("shared", [FileCopy(out, "nope", 0)], tell=told.append)
        with pytest.raises(NotFound, match="no volume `other` yet"):
            await files.entries("other", "")
        helpers = [one for one in world.emulator.state()["sandboxes"] if "files" in one["name"]]
        assert helpers
        assert {one["state"] for one in helpers} == {"destroyed"}
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        await world.provider.remove_volume("shared")

    daytona_alone(tale)


def test_a_volume_that_is_to_be_read_only_is_refused(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        mount = {"name": "shared", "mountPath": "/data", "readOnly": True}
        with pytest.raises(Refused, match="mounts all volumes writable"):
            await world.provider.start(world.order(command("true", volumes=[mount])))

    daytona_alone(tale)


def test_a_volume_that_somebody_else_deleted_is_made_again(daytona_alone: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        template = command("true", volumes=[{"name": "fleeting", "mountPath": "/data"}])
        assert (await world.run(template)).ok
        await world.again().remove_volume("fleeting")
        order = world.order(template, run="run-1")
        with pytest.raises(Unavailable):
            await world.provider.start(order)
        assert (await world.ended(await world.begin(order))).ok
        states = [one["state"] for one in world.emulator.state()["volumes"]]
        assert json.dumps(states).count("ready") >= 1

    daytona_alone(tale)
