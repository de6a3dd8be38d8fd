"""The part of the provider suite about programs that save their progress: what they resume from,
what is told of it, and what becomes of one that hangs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import CheckpointOrder, ProgressOrder
from tests.contracts.provider_worlds import MOUNT, World, command, python, story

# One checkpoint, one that a kill cut short, and the end of a crash.
CRASHES = """
import os
for step in (5, 10):
    with saving(step) as directory:
        (directory / "state.json").write_text(json.dumps({"step": step}))
        if step == 10:
            os.kill(os.getpid(), 9)
"""
GOES_ON = """
import json, os, pathlib, sys
import fleetctl_checkpoint as checkpoint
found = checkpoint.latest()
told = {
    "arguments": sys.argv[1:],
    "from": str(found),
    "step": os.environ["FLEETCTL_RESUME_STEP"],
    "state": json.loads((found / "state.json").read_text()),
    "left": sorted(one.name for one in found.parent.iterdir()),
}
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(told))
"""
# Four checkpoints of a layout that nobody knows, each written whole, and a crash.
OF_ITS_OWN = """
import os, pathlib
top = pathlib.Path(os.environ["FLEETCTL_CHECKPOINT"])
top.mkdir(exist_ok=True)
there = sorted(one.name for one in top.iterdir() if not one.name.startswith("."))
for step in (4, 8, 12, 16):
    for name in (f"checkpoint-{step}", f"step-{step}", f"{step}"):
        if name not in there:
            (top / name).mkdir()
            (top / name / "model.safetensors").write_text(name)
print(*there, os.environ.get("FLEETCTL_RESUME_FROM"), flush=True)
os.kill(os.getpid(), 9)
"""
SAVES = """
for step in (1, 2, 3, 4):
    with saving(step) as directory:
        (directory / "state").write_text(str(step))
"""
LISTS = """
import os
SUBMIT(left=sorted(one for one in os.listdir(TOP) if one.startswith("step")))
"""
HANGS = """
import time
def a_step_that_hangs():
    time.sleep(600)
print("step 1", flush=True)
report(step=1, loss=0.5)
a_step_that_hangs()
"""


class ProviderCheckpoints:
    """Mixed into ProviderSuite."""

    @story
    async def test_case_6_a_killed_program_goes_on_from_the_newest_complete_checkpoint(
        self, world: World
    ) -> None:
        """As `path`, `resume` and `resumeArgs` state."""
        await world.provider.ensure_volume(world.volume)
        place = f"{MOUNT}/{world.volume}"
        volumes = [{"name": world.volume, "mountPath": MOUNT}]
        asked = CheckpointOrder(place, "auto", "Latest")
        seen = await world.run(python(CRASHES, volumes=volumes), checkpoint=asked)
        assert (seen.ok, [one.step for one in seen.checkpoints.saved]) == (False, [5])
        asked = replace(asked, arguments=("--resume", "${checkpoint}"))
        goes_on = command("python3", "-c", GOES_ON, volumes=volumes)
        seen = await world.run(goes_on, run="run-1", template_hash="h2", checkpoint=asked)
        assert seen.ok, seen
        document: dict[str, Any] = json.loads(seen.result or "")
        # Where nothing is mounted, it is below the volume's own directory.
        newest = document["from"]
        assert newest.endswith(f"/{world.volume}/step-00000005")
        assert document["arguments"] == ["--resume", newest]
        assert (document["step"], document["state"]) == ("5", {"step": 5})
        assert seen.checkpoints.resumed == 5
        (aside,) = seen.checkpoints.aside
        # A volume that cannot rename keeps what is unfinished where it is.
        stays = aside.startswith("checkpoint `step-00000010` could not be moved aside")
        moved = aside.startswith("checkpoint `step-00000010` was moved aside as")
        assert stays or moved
        left = ["step-00000005", *(["step-00000010"] if stays else [])]
        beside = [] if stays else [".fleetctl-checkpoints.json", ".incomplete-step-00000010"]
        assert document["left"] == [*beside, *left]
        missing = replace(asked, resume="step:7")
        try:
            seen = await world.run(goes_on, run="run-2", template_hash="h2", checkpoint=missing)
        except Refused as error:  # where volumes can be listed it costs nothing
            assert str(error).endswith("the newest are: 5")
        else:
            assert (seen.ok, seen.reason) == (False, "NoCheckpoint")
            assert seen.message.endswith("the newest are: 5")
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        await world.provider.remove_volume(world.volume)

    @story
    async def test_checkpoints_of_a_layout_that_nobody_knows_stay_and_are_reported(
        self, world: World
    ) -> None:
        await world.provider.ensure_volume(world.volume)
        volumes = [{"name": world.volume, "mountPath": MOUNT}]
        asked = CheckpointOrder(f"{MOUNT}/{world.volume}", "auto", "Latest")
        work = command("python3", "-c", OF_ITS_OWN, volumes=volumes)
        names = [
            f"{what}{step}" for what in ("", "checkpoint-", "step-") for step in (4, 8, 12, 16)
        ]
        for number, told in enumerate((0, 1, 1)):
            run, template = f"run-{number}", f"h{number}"
            ref = await world.start(work, run=run, template_hash=template, checkpoint=asked)
            seen = await world.ended(ref)
            assert (seen.reason, seen.checkpoints.resumed) == ("Signal:KILL", None)
            there = " ".join(sorted(names)) + " " if number else ""
            await world.log_holds(ref, f"{there}None\n".encode())
            assert seen.checkpoints.aside == ()
            assert len(seen.checkpoints.left) == told
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        await world.provider.remove_volume(world.volume)

    @story
    async def test_checkpoints_that_are_not_to_be_kept_are_removed(self, world: World) -> None:
        """As `keep` states: the last one stays, and every second."""
        await world.provider.ensure_volume(world.volume)
        volumes = [{"name": world.volume, "mountPath": MOUNT}]
        top = f"{MOUNT}/{world.volume}"
        asked = CheckpointOrder(top, "auto", "Latest", last=1, every=2)
        seen = await world.run(python(SAVES, volumes=volumes), checkpoint=asked)
        assert seen.ok and [one.step for one in seen.checkpoints.saved][-1] == 4, seen
        listed = await world.run(
            python(LISTS, volumes=volumes), run="run-1", params={"TOP": top}, template_hash="h2"
        )
        assert json.loads(listed.result or "") == {"left": ["step-00000002", "step-00000004"]}
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        await world.provider.remove_volume(world.volume)

    @story
    async def test_a_program_that_hangs_says_where_and_is_ended(self, world: World) -> None:
        ref = await world.start(python(HANGS), progress=ProgressOrder(timeout_s=2.0, start_s=60.0))
        seen = await world.ended(ref)
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, False, "Stalled")
        log = (await world.log(ref)).decode()
        assert "in a_step_that_hangs" in log
