"""Scripts of Hugging Face, Lightning and Orbax, killed at step 12, go on from step 10."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
PYTHONS = Path(__file__).parents[2] / ".frameworks"
LIMIT_S = 180.0
CASES = {
    "huggingface": ("torch", ["hugging_face.py", "--output_dir", "/ckpt/run"]),
    "lightning": ("torch", ["lightning_fit.py", "/ckpt/run"]),
    "orbax": ("orbax", ["orbax_loop.py", "/ckpt/run"]),
}


class Fleet:
    def __init__(self, home: Path) -> None:
        self._env = {**os.environ, "FLEETCTL_HOME": str(home)}

    def run(self, *words: str, stdin: str | None = None) -> str:
        command = [sys.executable, "-m", "fleetctl", *words]
        done = subprocess.run(
            command, env=self._env, input=stdin, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def until_printed(self, text: str) -> None:
        """Follow the log until a line has this text."""
        command = [sys.executable, "-m", "fleetctl", "logs", "-f", "tr/train"]
        with subprocess.Popen(
            command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as following:
            assert following.stdout is not None
            assert any(text in line for line in following.stdout)
            following.terminate()

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "home")
    yield made
    made.run("down")


def manifest(name: str, crash: str) -> str:
    python, words = CASES[name]
    checkpoint: dict[str, Any] = {"path": "/ckpt/run"}
    if name == "huggingface":
        checkpoint["resumeArgs"] = ["--resume_from_checkpoint", "${checkpoint}"]
    spec = {
        "placement": {"provider": "local"},
        "maxRestarts": 1,
        "checkpoint": checkpoint,
        "template": {
            "command": [str(PYTHONS / python / "bin/python"), *words],
            "source": {"path": str(SCRIPTS)},
            "env": {"CRASH": crash, "JAX_PLATFORMS": "cpu"},
            "volumes": [{"name": "ckpt", "mountPath": "/ckpt"}],
            "timeoutSeconds": LIMIT_S,
        },
    }
    document = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "TrainingRun"}
    return json.dumps({**document, "metadata": {"name": "train"}, "spec": spec})


@pytest.mark.parametrize("crash", ["KILL", "TERM", "saving"])
@pytest.mark.parametrize("name", CASES)
def test_an_unmodified_script_goes_on_from_its_newest_whole_checkpoint(
    fleet: Fleet, name: str, crash: str
) -> None:
    fleet.run("apply", "-f", "-", stdin=manifest(name, crash))
    if crash == "TERM":
        fleet.until_printed("at step 12")
        fleet.run("suspend", "tr/train")
        fleet.run("resume", "tr/train")
    fleet.run("wait", "tr/train", "--timeout", f"{LIMIT_S:.0f}s")
    (result,) = fleet.json("results", "tr/train")
    assert result["result"] == {"resumed_from": 10, "steps": 20}
    assert result["attempts"] == 2
    parts = [(one["attempt"], one["step"]) for one in fleet.json("get", "checkpoints", "tr/train")]
    assert {(1, 10), (2, 20)} <= set(parts)
    aside = [one for one in fleet.json("events", "tr/train") if "Aside" in one["reason"]]
    assert bool(aside) is (crash == "saving")
