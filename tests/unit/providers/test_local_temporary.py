"""The temporary directory of a run on this machine: its name is short, however long the path of the
state directory is, and nothing of it stays.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fleetctl.providers.local.supervisor.isolation import mounts
from tests.contracts.local_worlds import LocalWorld
from tests.contracts.provider_worlds import World, python, script, story

RAY_BYTES = 66  # what Ray adds to $TMPDIR for the longest of its sockets
SOCKET_BYTES_MAX = 107
# Workers of a DataLoader meet at such a socket; where its path was too long, they hung.
MEETS = """
import multiprocessing, tempfile
with multiprocessing.Manager() as manager:
    shared = manager.dict()
    shared["x"] = 1
    SUBMIT(x=shared["x"], directory=tempfile.gettempdir())
"""


class InNamespaces:
    tier = "namespaces"

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path / ("d" * 60))

    @story
    async def test_case_20_sockets_of_multiprocessing_and_ray_fit(self, world: World) -> None:
        seen = await world.run(python(MEETS))
        assert seen.result is not None, seen
        found = json.loads(seen.result)
        assert found["x"] == 1
        assert len(os.fsencode(found["directory"])) + RAY_BYTES <= SOCKET_BYTES_MAX

    @story
    async def test_it_is_the_runs_own_and_lies_in_its_work_directory(self, world: World) -> None:
        ref = await world.start(
            script("touch $TMPDIR/x; readlink -f $TMPDIR/x; stat -Lc %a $TMPDIR")
        )
        await world.ended(ref)
        path, mode = (await world.log(ref)).decode().split()
        work = world.directory.resolve() / "home" / "local" / "jobs" / "uid-1" / "work"
        assert Path(path).is_relative_to(work)
        assert mode == "700"

    @story
    async def test_a_task_that_takes_the_name_away_takes_it_from_no_other(
        self, world: World
    ) -> None:
        shared = {"sandbox": "run-0", "reusable": True}
        first = await world.run(script("rm $TMPDIR && touch $TMPDIR"), run="run-0", **shared)
        second = await world.run(script("test -d $TMPDIR/"), run="run-1", **shared)
        assert first.ok and second.ok, (first, second)


class TestInNamespaces(InNamespaces):
    pass


class TestAsAProcess(InNamespaces):
    tier = "process"

    @story
    async def test_nothing_stays_of_a_supervisor_that_was_killed(self, world: World) -> None:
        before = set(os.listdir(mounts.TOP))
        ref = await world.start(script("echo begun; readlink $TMPDIR; sleep 600"))
        await world.log_holds(ref, b"work")
        made = os.path.dirname(await self.name_of(world, ref.run))
        assert made
        await world.lose(ref)
        await world.provider.remove_scratch(ref.uid, keep_logs=False)
        assert os.path.basename(made) not in set(os.listdir(mounts.TOP)) - before

    async def name_of(self, world: World, run: str) -> str:
        supervisors = world.directory / "home" / "local" / "keepers"
        (supervisor,) = supervisors.iterdir()
        made = mounts.prepare_names(str(supervisor.resolve()))
        (name,) = os.listdir(made)
        return f"{made}/{name}"


@pytest.mark.parametrize("kind", ["link", "open to all"])
def test_a_directory_that_may_be_somebody_elses_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(mounts, "TOP", str(tmp_path))
    path = Path(mounts.prepare_names("keeper"))
    assert mounts.prepare_names("keeper") == str(path)
    if kind == "link":
        path.rmdir()
        (tmp_path / "theirs").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "theirs")
    else:
        path.chmod(0o777)
    assert mounts.prepare_names("keeper") == ""
    assert mounts.short_name("", "/run/1", "/run/1/tmp") == "/run/1/tmp"
    mounts.remove_names("keeper")
    assert os.path.lexists(path)
