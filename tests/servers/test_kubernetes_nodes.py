"""Several nodes in a cluster: one Indexed Job, whose pods begin and end as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.specs.blocks.nodes import NO_RAY, Nodes, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.kubernetes_worlds import KubernetesWorld, emulated
from tests.contracts.provider_worlds import eventually
from tests.emulators.kubernetes.running import KubernetesEmulator

MEET = """
import os, socket
rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(place)
    met = sorted(server.accept()[0].recv(16).decode() for _ in range(count - 1))
    print("met", *met, flush=True)
    SUBMIT(met=met)
else:
    while True:
        try:
            with socket.create_connection(place) as line:
                line.sendall(str(rank).encode())
                print("said", rank, flush=True)
            break
        except ConnectionRefusedError:
            continue
"""


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    with emulated() as one:
        yield one


Tale = Callable[["NodesWorld"], Awaitable[None]]
Play = Callable[..., None]


class NodesWorld(KubernetesWorld):
    def node_log(self, run: str, node: int) -> str:
        name = f"{run}.n{node}" if node else run
        path = self.directory / "home" / "kubernetes" / "jobs" / "uid-1" / "runs" / f"{name}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Play:
    def told(tale: Tale, **settings: Any) -> None:
        async def scene() -> None:
            world = NodesWorld(tmp_path, emulator, **settings)
            try:
                await tale(world)
            finally:
                await world.close()

        asyncio.run(scene())

    return told


def gang(template: Template, nodes: Any = 2, procs: int | None = 1) -> Template:
    return with_nodes(template, Nodes.model_validate(nodes), procs, NO_RAY)


def states(seen: Any) -> list[str]:
    return [node.state for node in seen.nodes]


def test_nodes_meet_by_the_name_of_the_first_and_end_as_one(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        from tests.contracts.provider_worlds import python

        seen = await world.run(gang(python(MEET), 3))
        assert seen.ok, seen
        assert seen.result == '{"met":["1","2"]}'
        assert states(seen) == ["Succeeded"] * 3
        assert world.node_log("run-0", 0) == "met 1 2\n"
        assert [world.node_log("run-0", it) for it in (1, 2)] == ["said 1\n", "said 2\n"]
        assert world.living() == 0
        await eventually(lambda: _none(world, "services"), "the Service went with its Job")

    play(tale)


async def _none(world: NodesWorld, plural: str) -> bool:
    return not world.emulator.objects(plural, "", world.namespace)
