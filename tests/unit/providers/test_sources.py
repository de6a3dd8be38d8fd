"""Code for tasks: snapshots of directories, git checkouts, and where a task finds them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from tests.contracts.local_worlds import LocalWorld
from tests.contracts.provider_worlds import World, python, script, story


class Sources:
    tier = ""

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    def world(self, tmp_path: Path) -> LocalWorld:
        code = tmp_path / "my code"
        (code / "package").mkdir(parents=True)
        (code / "package" / "__init__.py").write_text("name = 'mine'")
        (code / "run.sh").write_text("echo from the script")
        for junk in (".git", "deep/node_modules", "deep/__pycache__", "logs"):
            (code / junk).mkdir(parents=True)
            (code / junk / "junk").write_text("x")
        (code / "inside").symlink_to("run.sh")
        (code / "outside").symlink_to("/etc/passwd")
        (code / "up").symlink_to("../other")
        return LocalWorld(tmp_path)

    @story
    async def test_a_task_starts_in_its_own_copy_of_the_source(self, world: World) -> None:
        source = {"path": str(world.directory / "my code"), "exclude": ["logs/"]}
        ref = await world.start(script("sh run.sh; find . | sort; echo x > made", source=source))
        assert (await world.ended(ref)).ok
        assert (await world.log(ref)).decode().splitlines() == [
            "from the script",
            *(".", "./deep", "./inside", "./package", "./package/__init__.py", "./run.sh"),
        ]
        again = await world.start(script("cat made", source=source), run="run-1")
        assert not (await world.ended(again)).ok
        assert not (world.directory / "my code" / "made").exists()

    @story
    async def test_a_python_task_imports_from_the_source(self, world: World) -> None:
        source = {"path": str(world.directory / "my code")}
        code = "import package\nfrom package import name\nSUBMIT(name=name)"
        assert (await world.run(python(code, source=source))).result == '{"name":"mine"}'

    @story
    async def test_all_runs_of_a_template_see_the_same_snapshot(self, world: World) -> None:
        source = {"path": str(world.directory / "my code")}
        await world.run(script("true", source=source))
        (world.directory / "my code" / "run.sh").write_text("echo changed")
        ref = await world.start(script("sh run.sh", source=source), run="run-1")
        await world.ended(ref)
        assert await world.log(ref) == b"from the script\n"

    @story
    async def test_workdir_is_relative_to_the_source(self, world: World) -> None:
        source = {"path": str(world.directory / "my code")}
        ref = await world.start(script("ls", source=source, workdir="package"))
        await world.ended(ref)
        assert await world.log(ref) == b"__init__.py\n"

    @story
    async def test_a_directory_that_is_not_there_is_refused(self, world: World) -> None:
        with pytest.raises(Refused, match="not a directory"):
            await world.start(script("true", source={"path": str(world.directory / "nope")}))

    @story
    async def test_a_git_source_is_named_like_its_repository(self, world: World) -> None:
        origin = world.directory / "Sky.RL.git"
        subprocess.run(["git", "init", "-q", "-b", "main", str(origin)], check=True)
        (origin / "train.sh").write_text("basename $PWD")
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", "-C", str(origin), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(origin), *who, "commit", "-qm", "x"], check=True)
        source = {"git": {"url": f"file://{origin}", "ref": "main"}}
        ref = await world.start(script("sh train.sh", source=source))
        await world.ended(ref)
        assert await world.log(ref) == b"Sky.RL\n"


class TestSourcesInNamespaces(Sources):
    tier = "namespaces"

    @story
    async def test_the_source_is_at_its_path_and_each_run_has_its_own(self, world: World) -> None:
        path = "/root/fleetctl-test/code"
        source = {"path": str(world.directory / "my code"), "mountPath": path}
        text = (
            "pwd; cat made 2>/dev/null; echo $TASK_N > made; sleep 0.3; cat made; echo x > /etc/x"
        )
        refs = [
            await world.start(script(text, source=source), run=f"run-{n}", params={"n": n})
            for n in range(3)
        ]
        for number, ref in enumerate(refs):
            assert not (await world.ended(ref)).ok
            lines = (await world.log(ref)).decode().splitlines()
            assert lines[:2] == [path, str(number)]
        assert not os.path.lexists("/root/fleetctl-test/code")


class TestSourcesInProcessTier(Sources):
    tier = "process"

    @story
    async def test_a_mount_path_that_is_not_to_be_had_is_told(self, world: World) -> None:
        source = {"path": str(world.directory / "my code"), "mountPath": "/fleetctl-test-code"}
        ref = await world.start(script("sh run.sh", source=source))
        seen = await world.ended(ref)
        assert seen.ok
        assert "/fleetctl-test-code" in seen.note
        assert b"from the script" in await world.log(ref)
