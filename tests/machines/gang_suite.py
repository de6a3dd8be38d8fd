"""Runs of several nodes, each in a sandbox of its own: the same at every provider whose nodes are
followed as runs of their own. A test module says how to build a world.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from fleetctl.controllers.model import Alive, Ended
from fleetctl.providers.contract.base import RunRef
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_worlds import World, eventually, python, script, story

COUNT = 2
WAITS = 'echo "begun $NODE_RANK"; sleep 600'
# Node 1 sends its variables to node 0, which hands in those of both.
MEET = """import json, os, socket, time
names = ("RANK", "WORLD_SIZE", "NODE_RANK", "NNODES", "PET_NNODES", "LOCAL_RANK")
mine = {it: os.environ[it] for it in names}
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if mine["RANK"] == "0":
    server = socket.create_server(at)
    peer, _ = server.accept()
    SUBMIT(first=mine, other=json.loads(peer.makefile().read()))
else:
    for _ in range(600):
        try:
            peer = socket.create_connection(at)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(json.dumps(mine).encode())
    peer.close()
"""


def several(template: Template, count: int = COUNT) -> Template:
    return with_nodes(template, NodeRange(min=count, max=count), None, NO_RAY)


def name() -> str:
    return f"run-{token_hex(4)}"


class GangSuite:
    def world(self, tmp_path: Path) -> World:
        raise NotImplementedError

    async def lose_node(self, world: World, ref: RunRef, rank: int) -> None:
        """Kill the supervisor of a node, as the kernel does when memory runs out."""
        raise NotImplementedError

    @story
    async def test_the_nodes_of_a_run_meet_and_node_0_hands_in_the_result(
        self, world: World
    ) -> None:
        ref = await world.start(several(python(MEET)), run=name())
        seen = await world.ended(ref)
        assert seen.ok, seen
        found = json.loads(seen.result or "")
        shared = {"WORLD_SIZE": "2", "NNODES": "2", "PET_NNODES": "2", "LOCAL_RANK": "0"}
        assert found == {
            "first": {**shared, "RANK": "0", "NODE_RANK": "0"},
            "other": {**shared, "RANK": "1", "NODE_RANK": "1"},
        }
        assert [it.state for it in seen.nodes] == ["Succeeded", "Succeeded"]
        assert list(await world.provider.owned()) == []

    @story
    async def test_the_first_node_that_fails_ends_the_others(self, world: World) -> None:
        text = "echo begun; [ $NODE_RANK = 0 ] || exit 7; sleep 600"
        seen = await world.ended(await world.start(several(script(text)), run=name()))
        assert (seen.ok, seen.exit_code) == (False, 7)
        assert [it.state for it in seen.nodes] == ["Stopped", "Failed"]
        assert list(await world.provider.owned()) == []

    @story
    async def test_a_stop_ends_all_nodes(self, world: World) -> None:
        ref = await world.start(several(script(WAITS)), run=name())
        await world.log_holds(ref, b"begun 0")
        [owned] = await world.provider.owned()
        assert (owned.sandbox, owned.handle) == (ref.run, ref.handle)
        await world.provider.stop(ref, grace_s=5)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        assert list(await world.provider.owned()) == []

    @story
    async def test_the_next_controller_adopts_all_nodes(self, world: World) -> None:
        order = world.order(several(script(WAITS)), run=name())
        ref = await world.begin(order)
        await world.log_holds(ref, b"begun 0")
        await world.provider.close()
        world.provider = world.again()
        assert await world.begin(order) == ref
        await world.log_holds(ref, b"begun 0")
        await self.lose_node(world, ref, 1)
        seen = await world.until(ref, lambda it: isinstance(it, Ended), "ended")
        assert isinstance(seen, Ended)
        assert not seen.ok
        assert list(await world.provider.owned()) == []

    @story
    async def test_all_nodes_are_found_by_the_name_of_their_run(self, world: World) -> None:
        ref = await world.start(several(script(WAITS)), run=name())
        await world.log_holds(ref, b"begun 0")
        await world.provider.close()
        world.provider = world.again()
        await world.provider.stop(replace(ref, handle="", uid=""), grace_s=0)

        async def gone() -> bool:
            return list(await world.provider.owned()) == []

        await eventually(gone, "no node is left")
