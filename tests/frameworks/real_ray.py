"""Ray itself around an attempt of two nodes on this machine. `make test-frameworks` installs it
into an environment of its own and names that in $FLEETCTL_TEST_RAY.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.specs.blocks.nodes import NodeRange, Ray, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.local_worlds import LocalWorld, processes_of, stop_supervisors
from tests.contracts.provider_worlds import World, eventually, script, story

BIN = os.environ["FLEETCTL_TEST_RAY"]
DRIVER = """python3 -c '
import ray
ray.init(log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=1)
def where():
    return ray.util.get_node_ip_address()

alive = [node for node in ray.nodes() if node["Alive"]]
print(len(alive), len(ray.get([where.remote()])), flush=True)
'
"""


def ray_job(text: str, nodes: int) -> Template:
    made = script(text, env={"PATH": f"{BIN}:/usr/bin:/bin"}, resources={"cpu": 1})
    ray = Ray.model_validate({"objectStoreMemory": "100Mi"})
    return with_nodes(made, NodeRange(min=nodes, max=nodes), None, ray)


class TestRealRay:
    @pytest.fixture(autouse=True)
    def _supervisors(self, tmp_path: Path) -> Any:
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_two_nodes_work_together_and_nothing_of_them_is_left(self, world: World) -> None:
        ref = await world.start(ray_job(DRIVER + "exit 7", 2))
        seen = await world.ended(ref)
        assert (seen.reason, await world.log(ref)) == ("ExitCode:7", b"2 1\n"), seen
        await eventually(lambda: _none_left(world), "no Ray process is left")

    @story
    async def test_two_clusters_at_once_do_not_meet(self, world: World) -> None:
        waits = DRIVER + "while [ ! -e $FLEETCTL_VOLUME_V/go ]; do sleep 0.1; done"
        volumes = Template(volumes=[{"name": "v", "mountPath": "/mnt/v"}]).volumes
        refs = [
            await world.start(
                ray_job(waits, count).model_copy(update={"volumes": volumes}),
                run=f"run-{count}",
                template_hash=f"h{count}",
                uid=f"uid-{count}",
            )
            for count in (1, 2)
        ]
        for ref, count in zip(refs, (b"1 1", b"2 1"), strict=True):
            await world.log_holds(ref, count)
        (world.directory / "home" / "local" / "volumes" / "v" / "go").touch()
        assert all([(await world.ended(ref)).ok for ref in refs])


async def _none_left(world: World) -> bool:
    return processes_of(world.directory / "home") == []
