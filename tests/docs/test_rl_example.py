"""The example of batched model calls: its trainer before an emulated server, its learner alone."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fleetctl.guest.library
from tests.docs.fleet import EXAMPLES
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Fault, Model

HERE = EXAMPLES / "rl-batched"
LIBRARY = Path(fleetctl.guest.library.__path__[0])
SMALL = ("--num-processes=4", "--num-steps=4", "--save-interval=1", "--compare-steps=0")


@contextmanager
def asking(
    model: Model, directory: Path, *flags: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """The trainer as a program of its own, in a session of its own, which asks `model`."""
    directory.mkdir(exist_ok=True)
    model.models = ("chat", "embed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEETCTL_")}
    with running(model):
        env = {
            **kept,
            "OPENAI_BASE_URL": model.url + "/v1",
            "PYTHONPATH": str(LIBRARY),
            "OMP_NUM_THREADS": "1",
            "FLEETCTL_RESULT": str(directory / "result.json"),
            "FLEETCTL_METRICS": str(directory / "metrics.jsonl"),
            **variables,
        }
        argv = [sys.executable, str(HERE / "train.py"), *SMALL, *flags]
        with subprocess.Popen(
            argv, env=env, cwd=directory, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            yield process


def train(model: Model, directory: Path, *flags: str, **variables: str) -> tuple[int, str]:
    """Its exit code and stderr."""
    with asking(model, directory, *flags, **variables) as process:
        _, talk = process.communicate()
    return process.returncode, talk


def rewards(directory: Path) -> list[str]:
    with (directory / "log.csv").open() as file:
        return [row["reward"] for row in csv.DictReader(file)]


def test_batching_changes_how_many_are_asked_at_once_and_nothing_else(tmp_path: Path) -> None:
    batched, single = Model(slots=64, together=4), Model(slots=64)
    assert train(batched, tmp_path / "b", "--num-env-steps=32", "--use-batching")[0] == 0
    assert train(single, tmp_path / "s", "--num-env-steps=32", "--no-batching")[0] == 0
    assert (batched.most_at_once, single.most_at_once) == (4, 1)
    assert rewards(tmp_path / "b") == rewards(tmp_path / "s") != []
    assert len(batched.asked) == len(single.asked)


def test_a_batch_size_bounds_the_environments_that_step_at_once(tmp_path: Path) -> None:
    model = Model(slots=64, together=2)
    assert train(model, tmp_path, "--num-env-steps=16", "--batch-size=2")[0] == 0
    assert model.most_at_once == 2


def test_one_run_times_both_ways(tmp_path: Path) -> None:
    model = Model(slots=64, answer_s=0.05)
    assert train(model, tmp_path, "--num-env-steps=16", "--compare-steps=1")[0] == 0
    result = json.loads((tmp_path / "result.json").read_text())
    # 8 calls of 50 ms one after another, against 2; no call is ever shorter than its answer.
    assert result["ms_single"] >= 8 * 50
    assert result["ms_batched"] >= 2 * 50
    assert result["speed_up"] == pytest.approx(result["ms_single"] / result["ms_batched"])


def test_a_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    kept = {"FLEETCTL_CHECKPOINT": str(tmp_path / "kept")}
    assert train(Model(slots=64), tmp_path, "--num-env-steps=32", **kept)[0] == 0
    first = rewards(tmp_path)
    resumed = {**kept, "FLEETCTL_RESUME_FROM": str(tmp_path / "kept" / "step-00000001")}
    assert train(Model(slots=64), tmp_path, "--num-env-steps=48", **resumed)[0] == 0
    result = json.loads((tmp_path / "result.json").read_text().splitlines()[-1])
    assert (result["resumed_from"], result["updates"]) == (1, 3)
    assert (rewards(tmp_path)[0], len(rewards(tmp_path))) == (first[0], 3)
    assert (tmp_path / "kept" / "step-00000003" / "_COMPLETE.json").exists()


def test_asked_to_stop_it_saves_and_leaves_no_process(tmp_path: Path) -> None:
    """TERM reaches the environments' processes, too, in the middle of their calls."""
    kept = {"FLEETCTL_CHECKPOINT": str(tmp_path / "kept")}
    os.mkfifo(tmp_path / "metrics.jsonl")  # so that the first line is waited for
    with (
        asking(Model(slots=64), tmp_path, "--num-env-steps=100000", **kept) as process,
        (tmp_path / "metrics.jsonl").open() as metrics,
    ):
        lines = [metrics.readline()]
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        lines += metrics.readlines()
    last = json.loads(lines[-1])["step"]
    assert (tmp_path / "kept" / f"step-{last:08d}" / "_COMPLETE.json").exists()


def test_a_dead_server_fails_the_training_and_leaves_no_model(tmp_path: Path) -> None:
    model = Model(slots=64)
    model.faults.extend([Fault(503)] * 1000)
    code, talk = train(model, tmp_path, "--num-env-steps=160")
    assert code == 1
    assert talk.splitlines()[-1].startswith("fleetctl_llm.TooManyFallbacks: 20 of 20 calls failed")
    assert not (tmp_path / "final_model.npz").exists()


@pytest.fixture
def ppo(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(HERE))
    import ppo as found  # type: ignore[import-not-found]

    yield found
    del sys.modules["ppo"]


def test_its_learner_finds_the_action_that_pays(ppo: ModuleType) -> None:
    """Of five actions each of three situations pays one; a step that was no choice pays most."""
    random = np.random.default_rng(0)
    weights = ppo.init_weights(3, 5, seed=0)
    settings = ppo.PpoSettings(lr=0.01)
    paid = []
    for _ in range(40):
        situations = random.integers(3, size=(17, 8))
        seen = np.eye(3)[situations]
        rows: list[Any] = [ppo.choose_actions(weights, seen[step], random) for step in range(16)]
        actions = np.stack([actions for actions, _ in rows])
        logs = np.stack([logs for _, logs in rows])
        valid = np.broadcast_to((np.arange(16) % 4 != 3)[:, None], (16, 8))
        right = (actions == situations[:16]).astype(float)
        reward = np.where(valid, right, 5.0 * (actions == 4))
        over = np.ones((16, 8), bool)
        rollout = ppo.RolloutBatch(
            seen, actions, logs, reward, over, np.zeros((16, 8), bool), valid
        )
        ppo.improve_policy(weights, rollout, settings, random)
        paid.append(right[valid].mean())
    assert paid[0] < 0.5 < 0.9 < np.mean(paid[-5:])
