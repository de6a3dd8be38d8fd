"""Provider `slurm` against the suite of all providers: Debian's Slurm, three nodes on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command
from tests.contracts.slurm_worlds import SlurmWorld
from tests.machines.slurm_cluster import SlurmCluster

# Its nodes take tens of seconds from state to state, and a busy machine tells them down.
pytestmark = [
    pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged"),
    pytest.mark.only_all(reason="a real Slurm of three nodes"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    place = tmp_path_factory.mktemp("slurm") / "cluster"
    with SlurmCluster(place) as one, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SLURM_CONF", str(one.config))
        yield one


class TestSlurm(ProviderSuite):
    sort = "slurm"
    whole = False
    test_a_task_reaches_the_hosts_of_its_network_alone = None  # refused
    test_a_task_calls_the_gateway_of_its_endpoints = None  # refused

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    def world(self, tmp_path: Path) -> World:
        return SlurmWorld(tmp_path, self.cluster)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})
