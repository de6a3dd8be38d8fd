"""Golden cases 7 and 9 of training, by the command line on this machine, and a stage that is done
again: what an attempt begins from when the newest checkpoint is not what it should be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fleet import Fleet
from tests.inside import PYTHON

# Saves at 5, 10 and 15 and is done at 20. Whoever begins from 15 fails, as of a file that is
# unreadable; the first attempt crashes after that save.
UNREADABLE = """
import json, os, sys
import fleetctl_checkpoint as checkpoint
first = int(os.environ.get("FLEETCTL_RESUME_STEP", "0"))
if first == 15:
    sys.exit("the file is not what it should be")
for step in range(first + 5, 20, 5):
    with checkpoint.saving(step) as directory:
        (directory / "state").write_text(str(step))
    if step == 15 and os.environ["FLEETCTL_ATTEMPT"] == "1":
        sys.exit(3)
open(os.environ["FLEETCTL_RESULT"], "w").write(json.dumps({"from": first}))
"""
# A checkpoint further in each attempt, then a crash; done at 30.
CRASHES = """
import json, os, sys
import fleetctl_checkpoint as checkpoint
first = int(os.environ.get("FLEETCTL_RESUME_STEP", "0"))
if first < 30:
    with checkpoint.saving(first + 10):
        pass
    sys.exit(3)
open(os.environ["FLEETCTL_RESULT"], "w").write(json.dumps({"arguments": sys.argv[1:]}))
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "home")
    yield made
    made.close()


def training(name: str, program: str, **spec: Any) -> str:
    template = {
        "command": [PYTHON, "-c", program],
        "volumes": [{"name": name, "mountPath": "/ckpt"}],
    }
    document = {
        "placement": {"provider": "local"},
        "retry": {"backoff": {"initial": "100ms", "max": "100ms"}},
        "checkpoint": {"path": "/ckpt/run", "resumeArgs": ["--from", "${checkpoint}"]},
        "template": template,
        **spec,
    }
    about = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "TrainingRun"}
    return json.dumps({**about, "metadata": {"name": name}, "spec": document})


def attempts(fleet: Fleet, key: str) -> list[str]:
    return [one["status"]["reason"] for one in fleet.json("get", "attempts", key)["items"]]


def saved(fleet: Fleet, key: str) -> list[tuple[int, int]]:
    """(step, attempt) of each checkpoint that was told."""
    items = fleet.json("get", "checkpoints", key)
    return [(one["step"], one["attempt"]) for one in items]


def test_case_7_what_is_whole_and_unreadable_is_stepped_back_from(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin=training("odd", UNREADABLE, maxRestarts=5))
    fleet.ok("wait", "tr/odd", "--timeout", "400s")
    assert attempts(fleet, "tr/odd") == ["ExitCode:3", "ExitCode:1", "ExitCode:1", "Completed"]
    assert [row["result"] for row in fleet.results("tr/odd")] == [{"from": 10}]
    assert "SteppedBack" in fleet.ok("events", "tr/odd")


def test_case_9_crashes_that_each_follow_a_new_checkpoint_are_the_first_again(fleet: Fleet) -> None:
    """And a retry of what has succeeded begins anew, not at the end."""
    fleet.ok("apply", "-f", "-", stdin=training("far", CRASHES, maxRestarts=1))
    fleet.ok("wait", "tr/far", "--timeout", "400s")
    assert attempts(fleet, "tr/far") == [*["ExitCode:3"] * 3, "Completed"]
    [row] = fleet.results("tr/far")
    option, newest = row["result"]["arguments"]
    assert option == "--from" and newest.endswith("/step-00000030")
    fleet.ok("retry", "tr/far", "--from", "main")
    fleet.ok("wait", "tr/far", "--timeout", "400s")
    again = [*["ExitCode:3"] * 3, "Completed"]
    assert attempts(fleet, "tr/far") == again * 2
    assert saved(fleet, "tr/far")[-3:] == [(10, 5), (20, 6), (30, 7)]
