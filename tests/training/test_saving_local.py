"""Golden case 8 of training, by the command line on this machine: whatever ends an attempt, it has
`signalBeforeStopSeconds` to save, an exit of 0 after that is no success, and the next one goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fleet import Fleet
from tests.inside import PYTHON

LIMIT_S = 30  # by then a program asks whether it is to save, also on a busy machine
# Saving takes longer than the grace of the template allows.
SAVES_WHEN_ASKED = """
import json, os, time
import fleetctl_checkpoint as checkpoint
step = int(os.environ.get("FLEETCTL_RESUME_STEP", "0"))
while step == 0 and not checkpoint.stop_requested():
    print("up", flush=True)
    time.sleep(0.02)
if step == 0:
    time.sleep(0.5)
    with checkpoint.saving(1) as directory:
        (directory / "state").write_text("1")
open(os.environ["FLEETCTL_RESULT"], "w").write(json.dumps({"resumed_from": step}))
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "home")
    yield made
    made.close()


def training(name: str, **template: Any) -> str:
    command = [PYTHON, "-c", SAVES_WHEN_ASKED]
    volumes = [{"name": name, "mountPath": "/ckpt"}]
    work = {"command": command, "volumes": volumes, "terminationGracePeriodSeconds": 0}
    spec = {
        "placement": {"provider": "local"},
        "maxRestarts": 1,
        "retry": {"backoff": {"initial": "100ms", "max": "100ms"}},
        "checkpoint": {"path": "/ckpt/run", "signalBeforeStopSeconds": 60},
        "template": {**work, **template},
    }
    about = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "TrainingRun"}
    return json.dumps({**about, "metadata": {"name": name}, "spec": spec})


def ends(fleet: Fleet, key: str) -> list[tuple[str, str]]:
    items = fleet.json("get", "attempts", key)["items"]
    return [(one["status"]["phase"], one["status"]["reason"]) for one in items]


def test_case_8_whatever_ends_an_attempt_leaves_it_the_time_to_save(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin=training("late", timeoutSeconds=LIMIT_S))
    fleet.ok("apply", "-f", "-", stdin=training("held"))
    fleet.ok("wait", "tr/late", "--timeout", "400s")
    while "up" not in fleet.ok("logs", "tr/held", "--tail", "1"):
        pass  # each look is a process of its own
    fleet.ok("suspend", "tr/held")
    fleet.ok("wait", "tr/held", "--for", "condition=Suspended", "--timeout", "400s")
    fleet.ok("resume", "tr/held")
    fleet.ok("wait", "tr/held", "--timeout", "400s")
    assert ends(fleet, "tr/late") == [("Failed", "Timeout"), ("Succeeded", "Completed")]
    assert ends(fleet, "tr/held") == [("Cancelled", "Suspended"), ("Succeeded", "Completed")]
    for key in ("tr/late", "tr/held"):
        assert [row["result"] for row in fleet.results(key)] == [{"resumed_from": 1}]
