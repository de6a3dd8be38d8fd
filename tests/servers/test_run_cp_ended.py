"""`fleetctl cp` out of a task that has ended: from its volumes at every provider, from the files
that a failed one left on this machine, and else a message that says what would have kept them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.controllers.model import Ended, Resource, RunState
from fleetctl.providers.contract.base import RunRef
from tests.contracts.provider_worlds import script
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, play, service

pytestmark = ON_TWO


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


async def over(world: VerbWorld, text: str, spec: dict[str, Any], run: str = "run-0") -> Ended:
    """A task that ended, and whose end the store knows."""
    template = script(text, **{key: spec[key] for key in ("volumes", "workdir") if key in spec})
    ref = await world.start(template, run=run)
    world.record(ref, spec={"template": spec}, resource=run == "run-0", index=int(run[-1]))
    end = await world.ended(ref)
    note(world, ref, end)
    return end


def note(world: VerbWorld, ref: RunRef, end: Ended) -> None:
    (run,) = [it for it, _ in world.store.runs.of(ref.uid) if it.name == ref.run]
    state = RunState.SUCCEEDED if end.ok else RunState.FAILED
    with world.store.transaction():
        assert world.store.runs.advance(replace(run, state=state, ended_at_s=end.ended_at_s))


async def copied(world: VerbWorld, source: str, target: str) -> str:
    code, out, said = await world.fleetctl("cp", source, target)
    assert code == 0, said
    return out


def test_what_it_wrote_to_a_volume_is_copied_from_there(here: Path, provider: str) -> None:
    async def tale(world: VerbWorld) -> None:
        await world.provider.ensure_volume("kept")
        desired = json.dumps({"provider": provider})
        row = Resource("uid-v", "Volume", "kept", 1, 0, desired, "", {}, {}, 5.0)
        with world.store.transaction():
            world.store.resources.put(row, expected_version=None)
        mounts = [{"name": "kept", "mountPath": "/data"}]
        await over(world, "mkdir /data/out; echo a > /data/out/a; sync", {"volumes": mounts})
        await copied(world, "job/job:0//data/out/a", ".")
        assert (here / "a").read_text() == "a\n"
        await copied(world, "job/job://data/out/.", "flat")
        assert (here / "flat/a").read_text() == "a\n"
        code, _, said = await world.fleetctl("cp", "job/job:0//data/none", ".")
        assert code == 4 and "volume/kept has no `/none`" in said
        code, _, said = await world.fleetctl("cp", "job/job:0/own.txt", ".")
        assert code == 3 and "its own disk was deleted with it" in said
        assert "fleetctl ls volume/kept" in said and "fleetctl results batchjob/job" in said

    play(here.parent / "home", provider, tale)


def test_a_failed_task_left_its_files_on_this_machine(here: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        end = await over(world, "mkdir deep; echo b > deep/b; ln -s /etc etc; exit 3", {})
        assert end.exit_code == 3
        await copied(world, "job/job:0/deep/b", "one")
        assert (here / "one").read_text() == "b\n"
        assert "copied 1 file" in await copied(world, "job/job:deep", ".")
        assert (here / "deep/b").read_text() == "b\n"
        await copied(world, "job/job:0/.", "all")
        assert (here / "all/deep/b").read_text() == "b\n"
        for path in ("none", "etc/hostname", "../.."):
            code, _, said = await world.fleetctl("cp", f"job/job:0/{path}", "x")
            assert code == 4 and "left no" in said
        code, _, said = await world.fleetctl("cp", "job/job:0//etc/hostname", "x")
        assert code == 3 and "its work directory" in said
        assert not (here / "x").exists()

    play(here.parent / "home", "local", tale)


def test_a_task_that_succeeded_left_no_files_and_the_message_says_what_keeps_them(
    here: Path,
) -> None:
    async def tale(world: VerbWorld) -> None:
        assert (await over(world, "echo c > c", {})).ok
        code, _, said = await world.fleetctl("cp", "job/job:0/c", ".")
        assert code == 3 and "`template.outputs` keeps" in said
        assert "on `local` a failed task's files are kept too" in said
        code, _, said = await world.fleetctl("cp", "one", "job/job:0/c")
        assert code in (3, 4)

    play(here.parent / "home", "local", tale)
