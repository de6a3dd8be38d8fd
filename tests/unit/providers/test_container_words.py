"""The command that starts a box's container, as podman and as docker read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.providers.machines.agent_link import AgentFault
from fleetctl.providers.machines.machine_containers import refuse_fault
from fleetctl.providers.machines.shipped import engines
from fleetctl.providers.machines.shipped.allocation import list_own_gpus
from fleetctl.providers.machines.shipped.boxes import Boxes
from fleetctl.providers.machines.shipped.containers import run_words

OWN = ["/r/python-1/loader", "--library-path", "/r/python-1/libraries", "/r/python-1/bin/python3"]


def words_of(directory: Path, command: list[str], **changes: Any) -> list[str]:
    gpus = changes.pop("gpus", [])
    container = {"command": command, "args": [], "image": "debian:12", "mounts": [], **changes}
    box = {"id": "ab12", "container": container}
    return run_words(Boxes(str(directory)), "one", box, "/r/agent/1/guest.py", OWN, gpus)


def test_a_container_is_found_by_its_name_and_the_directory_of_its_box(tmp_path: Path) -> None:
    words = words_of(tmp_path, ["podman"])
    assert words[:2] == ["podman", "run"]
    assert words[words.index("--name") + 1] == "fleetctl-one-ab12"
    assert words[words.index("--label") + 1] == f"fleetctl.root={tmp_path}"
    after = words[words.index("--entrypoint") :]
    assert after[1:6] == [OWN[0], "debian:12", *OWN[1:]]


@pytest.mark.parametrize(
    ("command", "user", "gpus"),
    [
        (["podman"], "0:0", ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=2"]),
        (["env", "A=b", "/opt/podman"], "0:0", ["--device", "nvidia.com/gpu=0"]),
        (["docker"], f"{os.geteuid()}:{os.getegid()}", ["--gpus", '"device=0,2"']),
    ],
)
def test_the_user_and_the_gpus_are_named_as_each_engine_has_them(
    tmp_path: Path, command: list[str], user: str, gpus: list[str]
) -> None:
    words = words_of(tmp_path, command, gpus=[0, 2])
    assert f"--user={user}" in words
    start = words.index(gpus[0])
    assert words[start : start + len(gpus)] == gpus


def test_a_network_of_the_options_takes_the_place_of_the_machines(tmp_path: Path) -> None:
    assert "--network=host" in words_of(tmp_path, ["podman"])
    words = words_of(tmp_path, ["podman"], args=["--network=none", "--pids-limit=7"])
    assert "--network=host" not in words
    assert words[words.index("--entrypoint") - 2 :][:2] == ["--network=none", "--pids-limit=7"]


def test_volumes_are_at_their_paths_and_written_only_where_the_task_may(tmp_path: Path) -> None:
    target = str(tmp_path / "volumes" / "v")
    mounts = [{"path": "/data", "target": target, "read_only": True}]
    words = words_of(tmp_path, ["podman"], mounts=[*mounts, {"path": "/out", "target": target}])
    assert f"{target}:/data:ro" in words
    assert f"{target}:/out" in words
    assert os.path.isdir(target)


def test_a_job_of_slurm_has_the_gpus_that_it_was_given() -> None:
    assert list_own_gpus({"SLURM_JOB_GPUS": "1,3", "CUDA_VISIBLE_DEVICES": "0,1"}) == [1, 3]
    assert list_own_gpus({"CUDA_VISIBLE_DEVICES": "0"}) == [0]
    assert list_own_gpus({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}) == []


def test_the_engine_of_the_settings_goes_before_the_one_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in engines.NAMES:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engines.find_engine([]) == ["podman"]
    assert engines.find_engine(["docker", "--host", "x"]) == ["docker", "--host", "x"]
    assert engines.describe_engine(["none-such"]) == engines.NO_ENGINE
    (tmp_path / "podman").unlink()
    assert engines.describe_engine([]) == "docker"


@pytest.mark.parametrize(
    ("sort", "said", "hint"),
    [
        ("image", "reading manifest 1 in x/y: manifest unknown", "check `image.registry`"),
        ("image", "unauthorized: authentication required", "ssh gpu1 podman login REGISTRY"),
        ("image", "requested access to the resource is denied", "podman login REGISTRY"),
        ("image", "short-name resolution enforced", "name its registry: `docker.io/"),
        ("engine", "it has no podman or docker", "ssh gpu1 sudo apt-get install -y podman"),
        ("container", "OCI runtime error", "ssh gpu1 podman run --rm x/y:1 true"),
    ],
)
def test_each_fault_of_an_engine_has_its_hint(sort: str, said: str, hint: str) -> None:
    error = AgentFault(sort, said)
    refusal = refuse_fault(error, "host `gpu1`", engine="podman", reach="ssh gpu1", image="x/y:1")
    assert said in str(refusal)
    assert hint in refusal.hint
