"""The examples of every seed on a real OpenSSH server and a real Slurm, to their golden values.

Paths that lead out of a task's own directory are below the test's: the machine is that of the
tests, and keeps what is at `/data` or `/root/data`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fleet import EXAMPLES, Fleet
from tests.docs.test_examples import PROGRAM
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Model
from tests.interpreters import hold_machine_paths
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.ssh_server import SshServer

# Kinds with work, whose documents get a placement.
_WORK = re.compile(r"(?m)^(kind: (?:BatchJob|Sweep|TrainingRun)\n(?:.*\n)*?spec:\n)")
_VOLUME = re.compile(r"(?m)^(kind: Volume\n(?:.*\n)*?spec:\n)")
_OUTSIDE = re.compile(r"(?<![\w.])/(root|home/ray|data)(?=[/\s,\]}])")
LONG = "15m"
SSH = pytest.param("ssh", marks=pytest.mark.needs("sshd"))
SLURM = pytest.param(
    "slurm",
    marks=[
        pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged"),
        pytest.mark.only_all(reason="a real Slurm of three nodes"),
    ],
)


class PlacedExamples:
    """The examples of a directory, each on provider `own`. sort: `ssh` or `slurm`."""

    def __init__(self, fleet: Fleet, directory: Path, sort: str) -> None:
        self.fleet = fleet
        self.directory = directory
        self.sort = sort
        self.machine = directory / "machine"
        self.files = directory / "examples"
        shutil.copytree(EXAMPLES, self.files)

    def write(self, name: str, changes: dict[str, str] | None = None) -> str:
        """Returns the path of an example that is placed, with further changes of its text."""
        text = (EXAMPLES / name).read_text("utf-8")
        for here, there in (changes or {}).items():
            assert here in text, f"{name} has no {here!r}"
            text = text.replace(here, there)
        text = re.sub(r"(?m)^  placement: .*\n", "", text)
        text, count = _WORK.subn(r"\g<1>  placement: {provider: own}\n", text)
        assert count, f"{name} has no work"
        text = _VOLUME.sub(r"\g<1>  provider: own\n", text)
        path = self.files / name
        path.write_text(self.inside(text), "utf-8")
        return str(path)

    def inside(self, text: str) -> str:
        return _OUTSIDE.sub(lambda found: f"{self.directory}/outside/{found[1]}", text)

    def apply(self, name: str, changes: dict[str, str] | None = None) -> None:
        self.fleet.ok("apply", "-f", self.write(name, changes), "--wait", "--timeout", LONG)

    def volume(self, name: str) -> Path:
        return self.machine / "volumes" / name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd") / "server") as one:
        yield one


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as one:
        yield one


@pytest.fixture(params=[SSH, SLURM])
def examples(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlacedExamples]:
    directory = Path(os.path.realpath(tmp_path))
    machine = str(directory / "machine")
    if request.param == "ssh":
        server: SshServer = request.getfixturevalue("server")
        host = {**server.host, "directory": machine, "slots": 4}
        spec: dict[str, object] = {"hosts": [host], "config": str(server.config)}
        fleet = Fleet(directory / "home")
    else:
        spec = {"sharedDir": machine}
        fleet = Fleet(directory / "home", request.getfixturevalue("cluster").env)
    manifest = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": "own"},
        "spec": {"type": request.param, request.param: spec},
    }
    fleet.ok("apply", "-f", "-", stdin=json.dumps(manifest))
    with hold_machine_paths():
        yield PlacedExamples(fleet, directory, request.param)
        fleet.close()
    boxes = (directory / "machine" / "boxes").glob("[!.]*")
    assert [it.name for it in boxes] == []


def test_the_three_batches_of_the_first_seeds(examples: PlacedExamples) -> None:
    examples.apply("batch.yaml")
    fleet = examples.fleet
    assert [row["result"] for row in fleet.results("job/parallel-tasks")] == [
        {"total": 499500},
        {"pi_approx": 3.141592653589793},
        {"greeting": "Hello from sandbox"},
    ]
    assert [row["result"] for row in fleet.results("job/chunks")] == [
        {"chunk_id": index, "count": 3} for index in range(3)
    ]
    written = sorted((examples.volume("rlm-volume-dspy") / "results").iterdir())
    assert {path.name: path.read_text("utf-8") for path in written} == {
        "chunk_0.json": "[2, 4, 6]",
        "chunk_1.json": "[8, 10, 12]",
        "chunk_2.json": "[14, 16, 18]",
    }
    values = [row["result"]["value"] for row in fleet.results("job/factorials")]
    assert values == [3628800, 39916800, 479001600, 6227020800, 87178291200]
    tasks = fleet.json("get", "tasks", "job/factorials")["items"]
    assert len({task["status"]["sandbox"] for task in tasks}) == 1


def test_the_grid_of_the_first_seeds(examples: PlacedExamples) -> None:
    examples.apply("sweep-grid.yaml")
    losses = {
        (row["params"]["lr"], row["params"]["batch_size"]): row["result"]["loss"]
        for row in examples.fleet.results("sweep/grid")
    }
    assert losses == {
        (0.001, 32): 23.873466489369594,
        (0.01, 32): 3.0942457101488188,
        (0.001, 64): 13.577456193359302,
        (0.01, 64): 1.6024042183073266,
    }
    best = examples.fleet.status("sweep/grid")["best"]
    assert best["params"] == {"lr": 0.01, "batch_size": 64}


def test_the_sweep_file_of_wandb_with_packages(examples: PlacedExamples) -> None:
    examples.apply("cartpole.yaml")
    rows = examples.fleet.results("sweep/cartpole")
    assert [row["result"]["policies_tried"] for row in rows] == [
        row["params"]["population"] * row["params"]["generations"] for row in rows
    ]
    best = examples.fleet.status("sweep/cartpole")["best"]
    assert best["metric"]["name"] == "train/roll/ep_rew/mean"
    assert best["metric"]["value"] > 400


def test_the_sweep_of_a_repository_in_workers_that_stay(
    examples: PlacedExamples, tmp_path: Path
) -> None:
    """With a directory for the repository and a program that needs no packages."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "train.py").write_text(PROGRAM, "utf-8")
    _, _, sweep = (EXAMPLES / "sweep-wandb.yaml").read_text("utf-8").partition("\n---\n")
    for part in (r"    image:\n(      .*\n)+", r"    secrets: .*\n", r"    resources: .*\n"):
        sweep = re.sub(part, "", sweep)
    sweep = re.sub(r"git: \{.*\}", f"path: {tmp_path / 'program'}", sweep)
    sweep = re.sub(r"(?m)^  placement: .*\n", "", sweep)
    sweep = _WORK.sub(r"\g<1>  placement: {provider: own}\n", sweep)
    fleet = examples.fleet
    fleet.ok("apply", "-f", "-", "--wait", "--timeout", LONG, stdin=sweep)
    status = fleet.status("sweep/solver")
    assert status["succeeded"] + status.get("stopped", 0) == 50
    tasks = fleet.json("get", "tasks", "sweep/solver")["items"]
    assert len({it["status"]["sandbox"] for it in tasks}) < 50


def test_the_training_by_what_models_answer_at_once(examples: PlacedExamples) -> None:
    """A job of Slurm cannot ask endpoints, so there it is refused before it is stored."""
    model = Model(slots=64, answer_s=0.01, models=("llama3.2:3b", "nomic-embed-text"))
    with running(model):
        path = examples.write(
            "rl-batched.yaml",
            {
                "http://127.0.0.1:11434": model.url,
                "--num-steps 32 --num-env-steps 10240": "--num-steps 4 --num-env-steps 128",
                "--num-env-steps=2048": "--num-steps=4, --num-env-steps=32, --compare-steps=0",
            },
        )
        fleet = examples.fleet
        answer = fleet.run("apply", "-f", path, "--wait", "--timeout", LONG)
        if examples.sort == "slurm":
            assert answer.code != 0
            assert "provider `slurm` carries no calls of endpoints" in answer.talk
            assert fleet.run("get", "tr/rewriting").code == 4
            return
        assert answer.code == 0, answer
    (trained,) = fleet.results("tr/rewriting")
    assert (trained["result"]["updates"], trained["result"]["resumed_from"]) == (2, 0)


def test_the_training_that_is_killed_and_goes_on_from_its_checkpoint(
    examples: PlacedExamples,
) -> None:
    """In Slurm the source is beside its task: one with a path of its own is refused."""
    fleet, changes = examples.fleet, {}
    if examples.sort == "slurm":
        answer = fleet.run("apply", "-f", examples.write("training.yaml"))
        assert answer.code != 0
        assert "a source is beside its task in the shared directory" in answer.talk
        assert fleet.run("get", "tr/spirals").code == 4
        text = (EXAMPLES / "training.yaml").read_text("utf-8")
        changes = dict.fromkeys(re.findall(r"      mountPath: /root/SkyRL.*\n", text), "")
        assert changes
    examples.apply("training.yaml", changes)
    made, trained = fleet.results("tr/spirals")
    path = examples.inside("/root/data/spirals.npz")
    assert made["result"] == {"path": path, "points": 800}
    assert (made["attempts"], trained["attempts"]) == (1, 2)
    assert trained["result"]["resumed_from"] == 200
    assert trained["result"]["accuracy"] > 0.98
    kept = sorted(path.name for path in examples.volume("skyrl-data").iterdir())
    assert kept == ["checkpoints", "spirals.npz"]


def test_packages_beside_an_image_of_a_registry_are_refused_before_they_are_stored(
    examples: PlacedExamples,
) -> None:
    (examples.files / "skyrl" / "SkyRL").mkdir()
    examples.fleet.env["WANDB_API_KEY"] = "local-key"
    changes = {"env: {SKYRL_REPO_ROOT: /root/SkyRL}": "pip: [einops]"}
    answer = examples.fleet.run("apply", "-f", examples.write("skyrl/skyrl.yaml", changes))
    assert answer.code != 0
    refusal = f"provider `{examples.sort}` adds no `image.pip` to an image of a registry"
    assert refusal in answer.talk
    assert examples.fleet.run("get", "tr/gsm8k").code == 4
