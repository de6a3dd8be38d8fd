"""The small sandbox that `cp`, `ls` and `rm` have at Daytona, where a volume is seen by sandboxes
alone: whatever happens, it goes, and it never keeps its volume from being deleted for long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.controllers.model import Resource
from fleetctl.providers.daytona.assets.daytona_volumes import LIFE_MINUTES
from tests.emulators.daytona.running import DaytonaEmulator
from tests.servers.daytona_fleet import DURATIONS_S
from tests.servers.verb_worlds import SLEEPS, VerbWorld, play, service

LS = ("ls", "volume/data")


@pytest.fixture(scope="module")
def emulator() -> Iterator[DaytonaEmulator]:
    with service("daytona") as emulator:
        yield emulator


@pytest.fixture(autouse=True)
def put_right(emulator: DaytonaEmulator) -> Iterator[None]:
    yield
    emulator.remove_faults()
    emulator.set(durations_s=DURATIONS_S)
    assert emulator.state()["present"] == []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def declared(world: VerbWorld) -> None:
    await world.provider.ensure_volume("data")
    desired = json.dumps({"provider": world.name})
    row = Resource("u-data", "Volume", "data", 1, 0, desired, "", {}, {}, 5.0)
    with world.store.transaction():
        world.store.resources.put(row, expected_version=None)


@pytest.mark.parametrize("lost", [{"drop": True}, {"status": 504}])
@pytest.mark.parametrize("starting_s", [0.0, 2.0])
def test_a_helper_whose_create_got_no_answer_is_ended_and_frees_its_volume(
    home: Path, emulator: DaytonaEmulator, lost: dict[str, Any], starting_s: float
) -> None:
    async def tale(world: VerbWorld) -> None:
        await declared(world)
        emulator.set(durations_s={"starting": starting_s})
        emulator.fault(operation="createSandbox", when="after", count=1, **lost)
        code, _, said = await world.fleetctl(*LS)
        assert code != 0 and "no sandbox for the volume's files" in said
        assert emulator.state()["present"] == []
        await world.provider.remove_volume("data")

    play(home, "daytona", tale)


def test_a_command_that_is_interrupted_leaves_no_helper(
    home: Path, emulator: DaytonaEmulator
) -> None:
    async def tale(world: VerbWorld) -> None:
        from fleetctl.providers.contract.account import built_in
        from fleetctl.wiring.account_registry import volume_files

        await declared(world)
        emulator.set(durations_s={"starting": 30.0})
        looking = asyncio.create_task(volume_files(built_in("daytona"), home).entries("data", ""))
        while not await asyncio.to_thread(lambda: emulator.state()["present"]):
            await asyncio.sleep(0.02)
        looking.cancel()
        # What starts cannot be ended before it has started.
        await asyncio.to_thread(emulator.advance, 30.0)
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert emulator.state()["present"] == []

    play(home, "daytona", tale)


def test_a_helper_that_stays_is_told_of_and_is_an_orphan_that_ends_in_time(
    home: Path, emulator: DaytonaEmulator
) -> None:
    async def tale(world: VerbWorld) -> None:
        await declared(world)
        fault = emulator.fault(operation="deleteSandbox", status=500)
        code, _, said = await world.fleetctl(*LS)
        assert code != 0 and "cannot be ended" in said
        emulator.remove_faults(fault)
        [helper] = emulator.state()["present"]
        life_s = helper["destroy_at_s"] - helper["created_at_s"]
        assert life_s == pytest.approx(60 * LIFE_MINUTES, abs=1)

        # Only a controller with something at Daytona looks there at all.
        await world.start(SLEEPS, run="run-1")
        [seen] = [one for one in await world.provider.owned() if one.handle == helper["id"]]
        # While it may be in use it is no orphan.
        assert seen.created_at_s - helper["created_at_s"] == pytest.approx(life_s, abs=60)
        await world.provider.remove_scratch("uid-1", keep_logs=False)

        code, out, said = await world.fleetctl("orphans", "-o", "json", "--provider", "daytona")
        assert code == 0, said
        [orphan] = [one for one in json.loads(out) if one["id"] == helper["id"]]
        assert (orphan["ours"], orphan["job"]) == (True, "volume/data")
        code, _, said = await world.fleetctl("orphans", helper["id"], "--adopt")
        assert code == 3 and "it shows a volume to a command" in said
        code, _, said = await world.fleetctl("orphans", helper["id"], "--delete", "--yes")
        assert code == 0, said
        assert helper["id"] not in [one["id"] for one in emulator.state()["present"]]

    play(home, "daytona", tale)
