"""Volumes and secrets of provider `modal`, their files, and the verbs that copy them.

Through the real SDK, against the emulator's own word on what it holds.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path

import modal
import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.contract.volume_files import FileCopy
from fleetctl.providers.modal.assets import modal_volumes
from fleetctl.providers.modal.assets.modal_volumes import ModalFiles, ModalVolumes, Secrets
from fleetctl.specs.blocks.template import Template
from fleetctl.stores.sqlite.store import open_store
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_assets import Assets, told


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


def mounting(name: str, **fields: object) -> Template:
    mount = {"name": name, "mountPath": "/data", **fields}
    return Template.model_validate({"script": "true", "volumes": [mount]})


def versions(assets: Assets) -> dict[str, int]:
    """What the emulator has, by name."""
    return {one["name"]: one["version"] for one in assets.emulator.state()["volumes"]}


async def uploaded(files: ModalFiles, volume: str, directory: Path, **texts: str) -> None:
    copies = []
    for name, text in texts.items():
        local = directory / name
        local.write_text(text)
        copies.append(FileCopy(local, name.replace("__", "/"), len(text)))
    await files.put(volume, copies, tell=lambda _: None)


@told
async def test_a_volume_that_a_template_mounts_is_made_with_version_2(assets: Assets) -> None:
    mounts = await ModalVolumes().mounts(assets.client, mounting("made"))
    assert versions(assets)["made"] == 2
    image = await assets.ready()
    await assets.output(image, "sh", "-c", "echo kept > /data/x; sync /data", volumes=mounts)
    assert await assets.output(image, "cat", "/data/x", volumes=mounts) == "kept\n"


@told
async def test_a_volume_of_version_1_is_used_as_it_is(assets: Assets) -> None:
    await modal.Volume.objects.create.aio("older", version=1, client=assets.client)
    volumes = ModalVolumes()
    await volumes.ensure(assets.client, "older")
    assert "/data" in await volumes.mounts(assets.client, mounting("older"))
    assert versions(assets)["older"] == 1


@told
async def test_read_only_means_that_writes_fail(assets: Assets) -> None:
    volumes, image = ModalVolumes(), await assets.ready()
    mounts = await volumes.mounts(assets.client, mounting("guarded", readOnly=True))
    reply = await assets.output(image, "sh", "-c", "echo x > /data/x", volumes=mounts)
    assert "ead-only" in reply
    assert await assets.output(image, "ls", "/data", volumes=mounts) == ""


@told
async def test_many_starts_ask_for_a_volume_once(assets: Assets) -> None:
    volumes = ModalVolumes()
    await volumes.mounts(assets.client, mounting("asked"))
    before = assets.emulator.rpcs()
    for _ in range(20):
        await volumes.mounts(assets.client, mounting("asked"))
    assert assets.emulator.rpcs() == before


@told
async def test_ensuring_and_removing_may_be_repeated(assets: Assets) -> None:
    volumes = ModalVolumes()
    for _ in range(2):
        await volumes.ensure(assets.client, "twice")
    assert "twice" in versions(assets)
    for _ in range(2):
        await volumes.remove(assets.client, "twice")
    assert "twice" not in versions(assets)


@told
async def test_a_volume_that_somebody_else_deleted_is_made_again(assets: Assets) -> None:
    volumes, image = ModalVolumes(), await assets.ready()
    await volumes.mounts(assets.client, mounting("gone"))
    await modal.Volume.objects.delete.aio("gone", client=assets.client)
    await volumes.ensure(assets.client, "gone")
    mounts = await volumes.mounts(assets.client, mounting("gone"))
    assert await assets.output(image, "ls", "/data", volumes=mounts) == ""


@told
async def test_a_name_that_modal_does_not_allow_is_refused(assets: Assets) -> None:
    with pytest.raises(Refused, match="volume"):
        await ModalVolumes().ensure(assets.client, "no/slashes")


@told
async def test_a_service_that_is_away_is_no_fault_of_the_volume(assets: Assets) -> None:
    assets.emulator.do("fault", rpc="Volume*", status="UNAVAILABLE", count=None)
    for act in ("ensure", "remove"):
        with pytest.raises(Unavailable):
            await getattr(ModalVolumes(), act)(assets.client, "away")


@told
async def test_files_are_listed_copied_and_removed(assets: Assets) -> None:
    await ModalVolumes().ensure(assets.client, "files")
    files, here = ModalFiles(assets.home, built_in("modal")), assets.home.parent
    await uploaded(files, "files", here, a="one", d__b="four", d__e__c="")
    top = await files.entries("files", "")
    assert [(one.path, one.is_directory, one.size) for one in top] == [
        ("a", False, 3), ("d", True, 0),
    ]  # fmt: skip
    below = await files.entries("files", "d", recursive=True)
    assert [one.path for one in below] == ["d/b", "d/e", "d/e/c"]
    (only,) = await files.entries("files", "d/b")
    assert (only.path, only.size, only.modified_at_s > 0) == ("d/b", 4, True)
    assert await files.size("files") == 7
    await files.get("files", [FileCopy(here / "out", "d/b", 4)], tell=lambda _: None)
    assert (here / "out").read_text() == "four"
    with pytest.raises(Refused, match="is a directory"):
        await files.remove("files", "d")
    await files.remove("files", "a")
    await files.remove("files", "d", recursive=True)
    assert await files.entries("files", "") == []


@told
async def test_what_is_not_there_is_told(assets: Assets) -> None:
    files = ModalFiles(assets.home, built_in("modal"))
    copy = FileCopy(assets.home.parent / "out", "nope", 0)
    with pytest.raises(NotFound, match="Modal has no volume `nowhere` yet"):
        await files.entries("nowhere", "")
    await ModalVolumes().ensure(assets.client, "empty")
    for act in (files.entries("empty", "nope"), files.remove("empty", "nope")):
        with pytest.raises(NotFound, match="has no `/nope`"):
            await act
    with pytest.raises(NotFound, match="has no `/nope`"):
        await files.get("empty", [copy, copy], tell=lambda _: None)
    assert list(assets.home.parent.glob("*out*")) == []


@told
async def test_a_large_directory_goes_in_several_uploads_and_is_told_of(assets: Assets) -> None:
    await ModalVolumes().ensure(assets.client, "many")
    files, here, seen = ModalFiles(assets.home, built_in("modal")), assets.home.parent, []
    count = modal_volumes.BATCH_FILES_MAX + 5
    copies = []
    for number in range(count):
        (here / f"f{number}").write_text(f"{number:04}")
        copies.append(FileCopy(here / f"f{number}", f"many/f{number}", 4))
    await files.put("many", copies, tell=seen.append)
    assert seen == [4 * modal_volumes.BATCH_FILES_MAX, 20]
    back = [FileCopy(here / f"back{n}", f"many/f{n}", 4) for n in range(count)]
    await files.get("many", back, tell=lambda _: None)
    assert [one.local.read_text() for one in back] == [f"{n:04}" for n in range(count)]


@told
async def test_what_a_task_synced_can_be_copied_while_it_runs(assets: Assets) -> None:
    image = await assets.ready()
    mounts = await ModalVolumes().mounts(assets.client, mounting("live"))
    sandbox = await modal.Sandbox.create.aio(
        "sh", "-c", "echo step-1 > /data/ckpt; sync /data; echo synced; sleep 600",
        app=assets.app, image=image, client=assets.client, volumes=mounts,
    )  # fmt: skip
    assert await anext(aiter(sandbox.stdout)) == "synced\n"
    out = assets.home.parent / "ckpt"
    files = ModalFiles(assets.home, built_in("modal"))
    await files.get("live", [FileCopy(out, "ckpt", 7)], tell=lambda _: None)
    assert out.read_text() == "step-1\n"
    await sandbox.terminate.aio()


@told
async def test_a_secret_of_modal_is_found_by_its_name_and_its_values_stay_there(
    assets: Assets,
) -> None:
    assets.emulator.do("secret", name="wandb", values={"WANDB_API_KEY": "hush"})
    secrets, image = Secrets(), await assets.ready()
    found = await secrets.named(assets.client, ("wandb",))
    reply = await assets.output(image, "sh", "-c", "echo $WANDB_API_KEY", secrets=found)
    assert reply == "hush\n"
    assert "hush" not in repr(found) + repr(vars(secrets))
    before = assets.emulator.rpcs()
    await secrets.named(assets.client, ("wandb", "wandb"))
    assert assets.emulator.rpcs() == before


@told
async def test_a_secret_that_modal_does_not_keep_is_refused(assets: Assets) -> None:
    with pytest.raises(Refused, match="Modal keeps no secret `nope`") as caught:
        await Secrets().named(assets.client, ("nope",))
    assert caught.value.hint == "modal secret create nope KEY=VALUE"


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


class Shell:
    """The verbs, with one Volume object on Modal."""

    def __init__(self, home: Path) -> None:
        store = open_store(home, FixedClock())
        with store.transaction():
            spec = json.dumps({"provider": "modal"})
            row = Resource("u", "Volume", "shared", 1, 0, spec, "", {}, {}, 5.0)
            stored = store.resources.put(row, expected_version=None)
            ready = json.dumps({"phase": "Ready", "observedGeneration": 1})
            store.resources.put_status("u", ready, expected_version=stored.version)
        store.close()

    def run(self, *words: str, code: int = 0) -> str:
        out, talk = io.StringIO(), io.StringIO()
        assert run_guarded(list(words), Screen(out, talk)) == code, talk.getvalue()
        return out.getvalue() + talk.getvalue()


def test_the_verbs_reach_a_volume_on_modal_without_a_controller(
    emulator: ModalEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**emulator.env, "FLEETCTL_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path / "home")
    shell.run("ls", "volume/shared", code=4)
    assert "Size:        -\n" in shell.run("describe", "volume/shared")

    async def make() -> None:
        env = emulator.env
        client = await modal.Client.from_credentials.aio(
            env["MODAL_TOKEN_ID"], env["MODAL_TOKEN_SECRET"]
        )
        await ModalVolumes().ensure(client, "shared")
        await client.close.aio()

    asyncio.run(make())
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "a").write_text("one")
    (tmp_path / "d" / "sub" / "b").write_text("two" * 1000)
    assert shell.run("cp", "d", "volume/shared:/in") == (
        "copied 2 files (2.9 KiB) to volume/shared:/in\n"
    )
    assert shell.run("ls", "volume/shared", "-R", "-o", "name").split() == [
        *("/in/", "/in/a", "/in/sub/", "/in/sub/b"),
    ]
    assert "Size:        2.9 KiB\n" in shell.run("describe", "volume/shared")
    shell.run("cp", "volume/shared:/in", "out")
    assert (tmp_path / "out" / "sub" / "b").read_text() == "two" * 1000
    (tmp_path / "d" / "a").write_text("changed")
    shell.run("cp", "d/a", "volume/shared:/in/a")
    shell.run("cp", "volume/shared:/in/a", "a")
    assert (tmp_path / "a").read_text() == "changed"
    shell.run("rm", "volume/shared:/in", code=3)
    shell.run("rm", "volume/shared:/in", "-r")
    assert shell.run("ls", "volume/shared") == "volume/shared:/ is empty\n"


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("good", "answers and knows the token"),
        ("wrong", "Modal does not accept the token"),
        ("no access", "the token has no access"),
    ],
)
def test_doctor_tells_what_a_token_may_do(
    emulator: ModalEmulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    says: str,
) -> None:
    env = {**emulator.env, "FLEETCTL_HOME": str(tmp_path / "home")}
    if token == "wrong":
        env["MODAL_TOKEN_SECRET"] = "as-wrong-and-hush"
    if token == "no access":
        env |= {"MODAL_TOKEN_ID": "ak-no-access", "MODAL_TOKEN_SECRET": "as-no-access"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    shell = Shell(tmp_path / "home")
    said = shell.run("doctor", code=0 if token == "good" else 1)
    (line,) = [line for line in said.splitlines() if "access: " in line]
    assert says in line
    assert line.startswith("ok" if token == "good" else "bad")
    assert env["MODAL_TOKEN_SECRET"] not in said
