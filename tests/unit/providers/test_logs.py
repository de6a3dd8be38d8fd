"""Reading output with no controller: what the CLI does."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fleetctl.errors import FleetctlError
from fleetctl.providers.local.keeper.logfile import LogFile
from fleetctl.providers.local.logs import LogReader, read_log
from fleetctl.providers.local.paths import Layout
from tests.contracts.local_worlds import LocalWorld
from tests.contracts.provider_worlds import World, script, story


class TestReading:
    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_output_is_followed_to_the_end_of_the_run(self, world: World) -> None:
        ref = await world.start(script("for i in 1 2 3; do echo $i; sleep 0.1; done"))
        seen: list[bytes] = []
        reading = threading.Thread(
            target=lambda: seen.extend(
                read_log(world.directory / "home", ref.uid, ref.run, follow=True)
            )
        )
        reading.start()
        await world.ended(ref)
        reading.join()
        assert b"".join(seen) == b"1\n2\n3\n"

    @story
    async def test_following_a_run_whose_keeper_died_ends(self, world: World) -> None:
        ref = await world.start(script("echo before; sleep 600"))
        await world.log_holds(ref, b"before")
        await world.lose(ref)
        await world.gone(ref)
        home = world.directory / "home"
        assert b"".join(read_log(home, ref.uid, ref.run, follow=True)) == b"before\n"


def test_what_was_never_there_is_empty(tmp_path: Path) -> None:
    assert list(read_log(tmp_path, "uid-1", "run-1", follow=True)) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".hidden", "x" * 300, "a\nb"])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(FleetctlError, match="cannot be the name"):
        list(read_log(tmp_path, "uid-1", name))
    with pytest.raises(FleetctlError, match="cannot be the name"):
        list(read_log(tmp_path, name, "run-1"))


def test_a_log_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.runs("uid-1").mkdir(parents=True)
    (layout.runs("uid-1") / "run-1.log").symlink_to("/etc/passwd")
    assert list(read_log(tmp_path, "uid-1", "run-1")) == []


def test_offsets_mean_the_same_bytes_whatever_was_dropped(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.runs("uid-1").mkdir(parents=True)
    directory = os.open(layout.runs("uid-1"), os.O_RDONLY)
    log = LogFile(directory, "run-1", 4096)
    text = b"".join(b"%07d\n" % number for number in range(2000))
    for start in range(0, len(text), 100):
        log.write(text[start : start + 100])
    log.close()
    reader = LogReader(layout, "uid-1", "run-1")
    assert reader.size() == len(text)
    assert reader.read(8)[0].startswith(b"0000001\n")
    data, offset = reader.read(1024)
    assert b"bytes of output were dropped" in data
    assert text[offset:].startswith(reader.read(offset)[0])
    assert reader.read(len(text) - 8) == (text[-8:], len(text))
    assert sum(path.stat().st_size for path in layout.runs("uid-1").iterdir()) <= 4096
