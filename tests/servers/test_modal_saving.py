"""Golden case 8 of training on a cloud: work that ends because its sandbox grows too old has
`signalBeforeStopSeconds` to save, an exit of 0 after that is no success, and the next one goes on.
"""

from __future__ import annotations

import json

import pytest

from fleetctl.controllers.model import RunState
from tests.servers import modal_fleet
from tests.servers.modal_fleet import Play

SAVES_WHEN_ASKED = """
import os, time
import fleetctl_checkpoint as checkpoint
step = int(os.environ.get("FLEETCTL_RESUME_STEP", "0"))
while step == 0 and not checkpoint.stop_requested():
    time.sleep(0.02)
if step == 0:
    time.sleep(0.5)
    with checkpoint.saving(1) as directory:
        (directory / "state").write_text("1")
with open(os.environ["FLEETCTL_RESULT"], "w") as file:
    file.write('{"resumed_from": %d}' % step)
"""


@pytest.fixture
def _trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modal_fleet.Fleet, "kind", "TrainingRun")
    # Of this, 300 s are kept for the end; what is left is enough for the helper to be imported.
    monkeypatch.setenv("FLEETCTL_MODAL_LIFETIME_S", "306")


@pytest.mark.usefixtures("_trains")
def test_case_8_a_sandbox_that_grows_too_old_leaves_its_work_the_time_to_save(
    on_modal: Play,
) -> None:
    async def tale(fleet: modal_fleet.Fleet) -> None:
        volume = f"saved-{fleet.store.store_id[:8]}"
        fleet.apply_kind("Volume", volume, {"provider": "modal", "deletionPolicy": "Delete"})
        template = {
            "command": ["python3", "-c", SAVES_WHEN_ASKED],
            "volumes": [{"name": volume, "mountPath": "/ckpt"}],
            "terminationGracePeriodSeconds": 0,
        }
        # It leaves once it has saved: a bound against a hang, however busy the machine is.
        checkpoint = {"path": "/ckpt/run", "signalBeforeStopSeconds": 240}
        spec = {"placement": {"provider": "modal"}, "template": template, "checkpoint": checkpoint}
        fleet.apply_kind("TrainingRun", "job", spec)
        done = await fleet.phase("Succeeded")
        first, second = fleet.runs()
        assert (first.state, first.reason) == (RunState.LOST, "MaxLifetime")
        assert (first.saved_step, second.resumed_step) == (1, 1)
        assert fleet.results() == {0: {"resumed_from": 1}}
        assert (done["restarts"], json.dumps(done["checkpoint"]).count('"step": 1')) == (0, 1)

    on_modal(tale)
