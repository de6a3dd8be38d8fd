"""Runs of several nodes on a real Slurm: one step of `srun` with a task on each node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.providers.contract.base import RunRef
from tests.contracts.provider_worlds import World
from tests.contracts.slurm_worlds import SlurmWorld
from tests.machines.gang_suite import GangSuite, name, script, several, story
from tests.machines.slurm_cluster import SlurmCluster

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


class TestSlurmGangs(GangSuite):
    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    def world(self, tmp_path: Path) -> World:
        return SlurmWorld(tmp_path, self.cluster)

    async def lose_node(self, world: World, ref: RunRef, rank: int) -> None:
        assert isinstance(world, SlurmWorld)
        box = ref.handle.split("+")[rank].partition("/")[2].partition("@")[0]
        os.kill(int((world.root / "boxes" / box / "state" / "supervisor").read_text()), 9)

    @story
    async def test_a_run_of_two_nodes_is_one_job_with_a_task_on_each(self, world: World) -> None:
        text = "echo node=$SLURMD_NODENAME rank=$NODE_RANK; sleep 600"
        ref = await world.start(several(script(text)), run=name())
        await world.log_holds(ref, b"rank=0")
        first, other = (it.partition("/")[0] for it in ref.handle.split("+"))
        assert first == other
        about = self.cluster.run("squeue", "-h", "-j", first, "-o", "%D %T")
        assert about.split() == ["2", "RUNNING"]
