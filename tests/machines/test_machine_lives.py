"""Servers, sessions, schedulers, nodes and controllers that are killed at any moment: nothing is
begun twice, lost or left. `make test` has the short form, `make test-all` the one of 50 kills.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.machines.machine_lives import (
    ContainerLife,
    ShellLife,
    SlurmLife,
    SshLife,
    live_through,
)
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.ssh_server import SshServer

LONG = pytest.param(50, marks=pytest.mark.only_all(reason="50 kills of real machines"))


@pytest.mark.needs("sshd")
@pytest.mark.parametrize("kills", [5, LONG])
def test_killed_controllers_and_sessions_lose_repeat_and_leave_nothing(
    tmp_path: Path, kills: int
) -> None:
    with SshServer(tmp_path / "server") as server:
        (tmp_path / "life").mkdir()
        life = SshLife(tmp_path / "life", Random(kills), server)
        assert live_through(life, kills=kills) == []


@pytest.mark.needs("sshd")
@pytest.mark.parametrize("kills", [2, LONG])
def test_kills_beside_a_host_without_python_lose_repeat_and_leave_nothing(
    tmp_path: Path, kills: int
) -> None:
    with SshServer(tmp_path / "server", python3=False) as server:
        (tmp_path / "life").mkdir()
        life = ShellLife(tmp_path / "life", Random(kills), server)
        assert live_through(life, kills=kills) == []


@pytest.mark.needs("sshd", "podman", "runc")
@pytest.mark.parametrize("kills", [3, LONG])
def test_killed_controllers_and_sessions_lose_repeat_and_leave_no_container(
    tmp_path: Path, kills: int
) -> None:
    with SshServer(tmp_path / "server") as server:
        (tmp_path / "life").mkdir()
        life = ContainerLife(tmp_path / "life", Random(kills), server)
        assert live_through(life, kills=kills) == []


@pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged")
@pytest.mark.parametrize("kills", [5, LONG])
def test_killed_controllers_schedulers_and_nodes_lose_repeat_and_leave_nothing(
    tmp_path: Path, kills: int
) -> None:
    with SlurmCluster(tmp_path / "cluster") as cluster:
        (tmp_path / "life").mkdir()
        life = SlurmLife(tmp_path / "life", Random(kills), cluster)
        assert live_through(life, kills=kills) == []
