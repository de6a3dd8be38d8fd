"""`ls`, `cp` and `rm` of a volume that is a PersistentVolumeClaim: each by a pod that is
gone when the verb is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.controllers.model import Resource
from tests.contracts.provider_worlds import eventually, script
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.verb_worlds import VerbWorld, play, service

MOUNT = [{"name": "data", "mountPath": "/data"}]
HARD = "with 'quotes', spaces\nand a line"


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    with service("kubernetes") as one:
        yield one


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def declare(world: VerbWorld) -> None:
    desired = json.dumps({"provider": "kubernetes"})
    row = Resource("u-data", "Volume", "data", 1, 0, desired, "", {}, {}, 5.0)
    with world.store.transaction():
        world.store.resources.put(row, expected_version=None)


async def told(world: VerbWorld, *words: str) -> str:
    code, out, said = await world.fleetctl(*words)
    assert code == 0, said
    return out


def helpers(emulator: KubernetesEmulator) -> list[str]:
    names = [it["metadata"]["name"] for it in emulator.objects("pods")]
    return [name for name in names if name.startswith("fleetctl-files-")]


def test_files_go_to_a_claim_and_come_back_and_a_task_finds_them(
    home: Path, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    given, back = tmp_path / "given", tmp_path / "back"
    (given / "deep" / HARD).mkdir(parents=True)
    (given / "deep" / HARD / "a.bin").write_bytes(bytes(range(256)) * 4096)
    (given / "b.txt").write_text("b")
    (given / "run.sh").write_text("echo ran")
    (given / "run.sh").chmod(0o755)

    async def tale(world: VerbWorld) -> None:
        declare(world)
        await world.provider.ensure_volume("data")
        await told(world, "cp", str(given), "volume/data:in")
        listed = (await told(world, "ls", "volume/data:in", "-o", "name")).split()
        assert listed == ["/in/b.txt", "/in/deep/", "/in/run.sh"]
        work = script(
            "/data/in/run.sh; cat /data/in/b.txt; echo made >/data/out.txt", volumes=MOUNT
        )
        ref = await world.start(work)
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"ran\nb"
        await told(world, "cp", "volume/data:in", str(back))
        assert (back / "deep" / HARD / "a.bin").read_bytes() == bytes(range(256)) * 4096
        assert (back / "b.txt").read_text() == "b"
        await told(world, "cp", "volume/data:out.txt", str(tmp_path / "out.txt"))
        assert (tmp_path / "out.txt").read_text() == "made\n"
        await told(world, "rm", "volume/data:in/b.txt")
        await told(world, "rm", "-r", "volume/data:in/deep")
        assert (await told(world, "ls", "volume/data:in", "-o", "name")).split() == ["/in/run.sh"]

        async def no_helper() -> bool:
            return helpers(emulator) == []

        await eventually(no_helper, "the pods of the verbs were gone")
        [claim] = emulator.objects("persistentvolumeclaims")
        assert claim["metadata"]["name"] == "data"

    play(home, "kubernetes", tale)


def test_what_is_not_there_is_told_and_a_directory_is_not_removed_by_the_way(
    home: Path, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("x")

    async def tale(world: VerbWorld) -> None:
        declare(world)
        code, _, said = await world.fleetctl("ls", "volume/data")
        assert code != 0 and "data" in said and "Traceback" not in said
        await world.provider.ensure_volume("data")
        assert await told(world, "ls", "volume/data", "-o", "name") == ""
        await told(world, "cp", str(tmp_path / "x"), "volume/data:dir/x")
        for words in (
            ("ls", "volume/data:nothing"),
            ("cp", "volume/data:nothing", str(tmp_path / "y")),
            ("rm", "volume/data:nothing"),
        ):
            code, _, said = await world.fleetctl(*words)
            assert code != 0 and "nothing" in said, said
        code, _, said = await world.fleetctl("rm", "volume/data:dir")
        assert code != 0 and "-r" in said, said
        assert (await told(world, "ls", "volume/data:dir", "-o", "name")).split() == ["/dir/x"]

    play(home, "kubernetes", tale)


def test_a_pod_for_files_that_does_not_begin_says_why(
    home: Path, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.providers.kubernetes.kubernetes_volumes.START_S", 1.0)

    async def tale(world: VerbWorld) -> None:
        declare(world)
        await world.provider.ensure_volume("data")
        emulator.pause("kubelet")
        try:
            code, _, said = await world.fleetctl("ls", "volume/data")
        finally:
            emulator.pause("kubelet", on=False)
        assert code != 0 and "volume/data: its pod begins on node" in said, said

        async def no_helper() -> bool:
            return helpers(emulator) == []

        await eventually(no_helper, "nothing was left of it")

    play(home, "kubernetes", tale)
