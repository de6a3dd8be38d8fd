"""How soon a checkpoint that a program has published is durable and known, on the emulated Modal
with 50 ms for each call.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.clouds import CALL_S
from tests.bench.harness import Figure
from tests.contracts.modal_worlds import emulated
from tests.contracts.provider_worlds import eventually
from tests.servers.modal_fleet import Fleet

COUNT = 9
GOAL_S = 2.0
# Each is published while nothing of the one before is still on its way. The guest looks once a
# second: in step with that all would wait the same, so each has a moment of its own between looks.
SAVES = f"""
import json, os, time
import fleetctl_checkpoint as checkpoint
published = {{}}
for step in range(1, {COUNT} + 1):
    with checkpoint.saving(step) as directory:
        (directory / "state").write_bytes(os.urandom(1 << 20))
    published[step] = time.time()
    time.sleep(2.0 + step * 0.37 % 1.0)
with open(os.environ["FLEETCTL_RESULT"], "w") as file:
    json.dump(published, file)
"""


class Trains(Fleet):
    kind = "TrainingRun"


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place, emulated() as emulator:
        emulator.do("latency", seconds=CALL_S)
        took = asyncio.run(_took(Trains, Path(place), emulator))
    middle_s, worst_s = statistics.median(took), max(took)
    return [
        Figure(
            f"Modal: from a checkpoint of 1 MB published by its program until its volume is "
            f"committed and its row is in the store, {COUNT} of one run",
            f"{middle_s:.2f} s, {min(took):.2f} to {worst_s:.2f} s",
            f"{GOAL_S:.0f} s",
            worst_s <= GOAL_S,
        )
    ]


async def _took(make: type[Trains], place: Path, emulator: object) -> list[float]:
    """Seconds, by step. The row is written after the commit, so this is no less than that."""
    fleet = make(place / "home", emulator)  # type: ignore[arg-type]
    known: dict[int, float] = {}
    try:
        volume = f"saved-{fleet.store.store_id[:8]}"
        fleet.apply_kind("Volume", volume, {"provider": "modal", "deletionPolicy": "Delete"})
        template = {
            "command": ["python3", "-c", SAVES],
            "volumes": [{"name": volume, "mountPath": "/ckpt"}],
        }
        spec = {"placement": {"provider": "modal"}, "template": template}
        fleet.apply_kind("TrainingRun", "job", {**spec, "checkpoint": {"path": "/ckpt/run"}})

        async def over() -> bool:
            for run in fleet.runs():
                if run.saved_step is not None:
                    known.setdefault(run.saved_step, time.time())
            return fleet.status().get("phase") == "Succeeded"

        await eventually(over, "the training was over")
        published = fleet.results()[0]
        return [known[int(step)] - at_s for step, at_s in published.items()]
    finally:
        await fleet.close()
