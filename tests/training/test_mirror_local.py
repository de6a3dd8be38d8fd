"""`checkpoint.mirror` on this machine: the last checkpoint of a run is there once it is over, and
an empty volume gets it back.
"""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest

from fleetctl.controllers.model import CheckpointOrder
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_worlds import command, story
from tests.inside import PYTHON, show_files

# Saves once where it begins anew, and says what it began from.
TRAINS = """
import json, os, pathlib
import fleetctl_checkpoint as checkpoint
found = checkpoint.latest()
if found is None:
    with checkpoint.saving(10) as directory:
        (directory / "state").write_text("ten")
told = {"from": None if found is None else (found / "state").read_text()}
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(told))
"""


class TestMirror:
    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @pytest.fixture(autouse=True)
    def _seen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        show_files(monkeypatch)

    @story
    async def test_an_empty_volume_gets_the_last_checkpoint_of_an_earlier_run_back(
        self, world: LocalWorld
    ) -> None:
        there = world.directory / "there"
        packages = str(Path(fsspec.__file__).parents[1])
        asked = CheckpointOrder("/data/ckpt", "auto", "Latest", mirror=f"file://{there}")
        told = []
        for number, volume in enumerate(("one", "two")):
            await world.provider.ensure_volume(volume)
            volumes = [{"name": volume, "mountPath": "/data"}]
            work = command(PYTHON, "-c", TRAINS, volumes=volumes, env={"PYTHONPATH": packages})
            seen = await world.run(
                work, run=f"run-{number}", template_hash=volume, checkpoint=asked
            )
            assert seen.ok and seen.checkpoints.unmirrored == (), (seen.message, seen.reason)
            assert (there / "step-00000010.mirrored.json").exists()
            told.append(json.loads(seen.result or "")["from"])
        assert told == [None, "ten"]
        stop_supervisors(world.directory / "home")
