"""`fleetctl cp` with a task that runs, at every provider: bytes arrive as they were, where
`docker cp` would put them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.provider_worlds import script
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, play, service

WORK = script(
    "mkdir -p out/deep; head -c 300000 /dev/urandom > out/random; echo a > out/deep/a;"
    " sha256sum < out/random; exec sleep 600"
)

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


async def copied(world: VerbWorld, source: str, target: str) -> str:
    code, out, said = await world.fleetctl("cp", source, target)
    assert code == 0, said
    return out


async def begun(world: VerbWorld) -> None:
    ref = await world.start(WORK, run="run-0")
    world.record(ref)
    await world.log_holds(ref, b"  -\n")


def test_files_and_directories_come_out_and_go_in(here: Path, provider: str) -> None:
    async def tale(world: VerbWorld) -> None:
        await begun(world)
        assert "copied 1 file (293.0 KiB)" in await copied(world, "job/job:0/out/random", "copy")
        await copied(world, "job/job:0/out", ".")
        assert (here / "out/random").read_bytes() == (here / "copy").read_bytes()
        assert (here / "out/deep/a").read_text() == "a\n"
        await copied(world, "job/job:0/out/deep/.", "flat")
        assert os.listdir(here / "flat") == ["a"]

        await copied(world, "copy", "job/job:back")
        await copied(world, "copy", "job/job:0/out/")
        await copied(world, "out", "job/job:0/new")
        message = "sha256sum < out/random; sha256sum < back; sha256sum < out/copy; cat new/deep/a"
        code, out, said = await world.fleetctl("exec", "job/job", "--", "sh", "-c", message)
        assert code == 0, said
        first, second, third, last = out.splitlines()
        assert first == second == third and last == "a"
        await copied(world, "job/job:0//etc/hostname", "name")
        assert (here / "name").exists()

        assert (await world.fleetctl("cp", "job/job:0/none", "."))[0] == 4
        assert (await world.fleetctl("cp", "none", "job/job:0/"))[0] == 4
        assert (await world.fleetctl("cp", "job/job:0/out", "copy"))[0] == 2
        assert (await world.fleetctl("cp", "job/job:0/a", "job/job:0/b"))[0] == 2

    play(here.parent / "home", provider, tale)
