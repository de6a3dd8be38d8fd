"""From a manifest to its result on real machines: several nodes, and work that spills over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.emulators.modal.running import ModalEmulator
from tests.machines.gathering import Gathering
from tests.machines.machine_lives import MachineLife, SlurmLife, SshLife
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.ssh_server import SshServer

SLURM_THERE = pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged")
SLURM_LONG = pytest.mark.only_all(reason="a real Slurm of three nodes")
WHERE = "import os\nSUBMIT(job=os.environ.get('SLURM_JOB_ID', ''))"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SlurmLife]:
    with SlurmCluster(tmp_path / "cluster") as one:
        (tmp_path / "life").mkdir()
        yield SlurmLife(tmp_path / "life", Random(1), one)


def apply(life: MachineLife, *objects: dict[str, object]) -> None:
    life.declare()
    life.start()
    for fields in objects:
        text = json.dumps({"apiVersion": "fleetctl.dev/v1alpha1", **fields})
        done = life.command("apply", "-f", "-", "--wait", "--timeout", "5m", stdin=text)
        assert done.returncode == 0, done.stdout + done.stderr


def training(script: str) -> dict[str, object]:
    spec = {
        "placement": {"provider": "own"},
        "nodes": 2,
        "template": {"script": script},
    }
    return {"kind": "TrainingRun", "metadata": {"name": "pair"}, "spec": spec}


@SLURM_THERE
@SLURM_LONG
def test_a_training_of_two_nodes_runs_and_shows_the_log_of_each(cluster: SlurmLife) -> None:
    try:
        apply(cluster, training("echo I am $NODE_RANK of $NNODES in $SLURM_JOB_ID"))
        for rank in ("0", "1"):
            shown = cluster.command("logs", "tr/pair", "--node", rank).stdout
            assert f"I am {rank} of 2 in " in shown
        described = cluster.command("describe", "tr/pair").stdout
        assert "Slurm job " in described
    finally:
        assert cluster.end() == []
    assert cluster.leftovers() == []


@SLURM_THERE
@SLURM_LONG
def test_work_that_finds_no_room_here_spills_over_to_slurm(cluster: SlurmLife) -> None:
    local = {
        "kind": "Provider",
        "metadata": {"name": "local"},
        "spec": {"limits": {"maxConcurrent": 0}},
    }
    placement = {
        "ordered": [{"provider": "local"}, {"provider": "own"}],
        "spillOver": {"afterSeconds": 1},
    }
    spec = {
        "placement": placement,
        "completions": 2,
        "template": {"python": WHERE},
    }
    job = {"kind": "BatchJob", "metadata": {"name": "both"}, "spec": spec}
    try:
        apply(cluster, local, job)
        rows = json.loads(cluster.command("results", "job/both", "-o", "json").stdout)
        assert [row["result"]["job"].isdigit() for row in rows] == [True, True]
    finally:
        assert cluster.end() == []
    assert cluster.leftovers() == []


@SLURM_THERE
@SLURM_LONG
def test_tasks_go_on_to_slurm_and_to_modal_as_each_is_full_and_each_begins_once(
    tmp_path: Path, cluster: SlurmLife
) -> None:
    """Each task is held until all have begun: then every place is as full as it may be."""
    limits = {"local": {"maxConcurrent": 1}, "own": {"maxConcurrent": 2}}
    spec = {
        "parallelism": 5,
        "tasks": {"items": [{"number": number} for number in range(5)]},
        "placement": {
            "ordered": [{"provider": it} for it in ("local", "own", "modal")],
            "spillOver": {"afterSeconds": 1},
        },
        "template": {},
    }
    with ModalEmulator() as modal, Gathering(5) as gathering:
        cluster.variables = modal.env
        spec["template"] = {"python": gathering.task()}
        job = {"kind": "BatchJob", "metadata": {"name": "spread"}, "spec": spec}
        try:
            apply(cluster, *(_limit(cluster, name, limits[name]) for name in limits), job)
            rows = json.loads(cluster.command("results", "job/spread", "-o", "json").stdout)
            assert sorted(row["result"]["number"] for row in rows) == [0, 1, 2, 3, 4]
            tasks = json.loads(
                cluster.command("get", "attempts", "job/spread", "-o", "json").stdout
            )
            places = Counter(it["status"]["provider"] for it in tasks["items"])
            assert places == {"local": 1, "own": 2, "modal": 2}
            assert sorted(gathering.begun) == ["0", "1", "2", "3", "4"]
        finally:
            assert cluster.end() == []
        assert cluster.leftovers() == []
        assert modal.live() == []


def _limit(life: MachineLife, name: str, limits: dict[str, object]) -> dict[str, object]:
    spec = {**(life.declaration() if name == "own" else {}), "limits": limits}
    return {"kind": "Provider", "metadata": {"name": name}, "spec": spec}


@pytest.mark.needs("sshd")
def test_nodes_that_no_host_is_there_for_are_refused_before_they_are_stored(
    tmp_path: Path,
) -> None:
    with SshServer(tmp_path / "server") as server:
        (tmp_path / "life").mkdir()
        life = SshLife(tmp_path / "life", Random(1), server)
        try:
            life.declare()
            text = json.dumps({"apiVersion": "fleetctl.dev/v1alpha1", **training("true")})
            done = life.command("apply", "-f", "-", stdin=text)
            assert done.returncode != 0
            assert "`nodes` is 2, and provider `own` has 1 host" in done.stderr
            assert life.command("get", "tr/pair").returncode != 0
        finally:
            assert life.end() == []
