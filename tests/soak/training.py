"""A training whose controller, nodes and supervisor are killed at any moment, and that has the
weights of an undisturbed one in the end, to the last digit. Called by the test and by `make soak`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.soak import weights
from tests.soak.killing import Life

NODES = 2
STEPS_PER_KILL = 20
PAUSE_S = 0.02  # of a step
BETWEEN_KILLS_S = 0.6  # at most; an attempt begins and saves within that, or does not
END_WAIT_S = 120.0
TRAINER = str(Path(weights.__file__))
SUPERVISOR = "providers/local/supervisor"


def train_through(root: Path, *, kills: int, seed: int) -> list[str]:
    """Sentences about what went wrong; empty when all is as it has to be. kills: at least; some
    more come while no controller is there.
    """
    life = Life(root, Random(seed))
    life.start()
    done = life.command("apply", "-f", "-", stdin=_manifest(steps := kills * STEPS_PER_KILL))
    if done.returncode:
        return [f"apply failed: {done.stderr}"]
    killed = {"controller": 0, TRAINER: 0, SUPERVISOR: 0}
    while sum(killed.values()) < kills:
        time.sleep(life.random.uniform(0.0, BETWEEN_KILLS_S))
        what = life.random.choice(list(killed))
        killed[what] += _kill(life, what)
    found = _findings(life, steps)
    life.command("delete", "tr/weights", "--timeout", "400s")
    return found + life.end()


def _kill(life: Life, what: str) -> bool:
    """One process of the sort, if there is any now."""
    if what == "controller":
        life.kill()
        if life.random.random() < 0.5:  # half of the others die while none is there
            for other in (TRAINER, SUPERVISOR)[: life.random.randrange(3)]:
                _kill(life, other)
        life.start()
        return True
    pids = [pid for pid, line in life.processes().items() if what in line]
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(life.random.choice(pids), signal.SIGKILL)
    return True


def _findings(life: Life, steps: int) -> list[str]:
    """Once it has ended."""
    waited = life.command("wait", "tr/weights", "--timeout", f"{END_WAIT_S:.0f}s")
    if waited.returncode:
        return [f"it did not succeed: {waited.stdout}{waited.stderr}"]
    rows = json.loads(life.command("results", "tr/weights", "-o", "json").stdout)
    found, wanted = rows[-1]["result"]["weights"], weights.undisturbed(steps, NODES)
    return [] if found == wanted else [f"the weights are {found}, and undisturbed {wanted}"]


def _manifest(steps: int) -> str:
    spec = {
        "nodes": NODES,
        "maxRestarts": 1000,
        "maxInfraRetries": 1000,
        "retry": {"backoff": {"initial": "100ms", "max": "100ms"}},
        "checkpoint": {"path": "/ckpt/run", "keep": {"last": 2}},
        "template": {
            "command": [sys.executable, TRAINER],
            "env": {"STEPS": str(steps), "PAUSE": str(PAUSE_S)},
            "volumes": [{"name": "ckpt", "mountPath": "/ckpt"}],
        },
    }
    return json.dumps(
        {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": "weights"},
            "spec": spec,
        }
    )
