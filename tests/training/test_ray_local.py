"""A Ray cluster around an attempt on this machine, with a stand-in for Ray that keeps its rules."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.specs.blocks.nodes import NodeRange, Ray, with_nodes
from fleetctl.specs.blocks.template import Image, Template
from tests.contracts.local_worlds import LocalWorld, processes_of, stop_supervisors
from tests.contracts.provider_worlds import World, eventually, script, story
from tests.inside import show_checkout

STANDIN = str(Path(__file__).with_name("standin"))
DRIVER = """python3 -c '
import os, ray
ray.init(address=os.environ["RAY_ADDRESS"])
print(len(ray.nodes()), os.environ["RAY_ADDRESS"], os.environ["RAY_AUTH_MODE"], flush=True)
'
"""


def ray_job(text: str, nodes: Any = 2, *, ray: Any = True, **env: str) -> Template:
    path = f"{STANDIN}:{Path(sys.executable).parent}:/usr/bin:/bin"
    made = script(text, env={"PATH": path, "PYTHONPATH": STANDIN, **env})
    return with_nodes(made, NodeRange.model_validate(nodes), None, Ray.model_validate(ray))


class TestRay:
    @pytest.fixture(autouse=True)
    def _supervisors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        show_checkout(monkeypatch)  # where the stand-in of Ray is
        yield
        stop_supervisors(tmp_path / ("d" * 30) / "home")

    def world(self, tmp_path: Path) -> LocalWorld:
        # A home of 60 bytes and more: Ray's sockets fit all the same.
        return LocalWorld(tmp_path / ("d" * 30))

    @story
    async def test_case_13_the_work_begins_when_all_nodes_are_there_and_keeps_its_code(
        self, world: World
    ) -> None:
        ref = await world.start(ray_job(DRIVER + "exit 7"))
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason, seen.exit_code) == (False, "ExitCode:7", 7)
        count, address, mode = (await world.log(ref)).decode().split()
        assert (count, mode) == ("2", "token") and address.startswith("127.0.0.2:")
        await eventually(lambda: _none_left(world), "no Ray process is left")

    @story
    async def test_case_13_two_at_once_see_their_own_nodes(self, world: World) -> None:
        waits = DRIVER + "while [ ! -e $FLEETCTL_VOLUME_V/go ]; do sleep 0.02; done"
        volumes = [{"name": "v", "mountPath": "/mnt/v"}]
        made = [ray_job(waits, nodes).model_copy() for nodes in (2, 3)]
        mounted = [
            it.model_copy(update={"volumes": Template(volumes=volumes).volumes}) for it in made
        ]
        refs = [
            await world.start(it, run=f"run-{n}", template_hash=f"h{n}", uid=f"uid-{n}")
            for n, it in enumerate(mounted)
        ]
        for ref, count in zip(refs, (b"2 ", b"3 "), strict=True):
            await world.log_holds(ref, count)
        (world.directory / "home" / "local" / "volumes" / "v" / "go").touch()
        ends = [await world.ended(ref) for ref in refs]
        assert [(end.ok, end.message) for end in ends] == [(True, "")] * 2
        addresses = [(await world.log(ref)).split()[1] for ref in refs]
        assert addresses[0] != addresses[1]

    @story
    async def test_a_cluster_that_does_not_come_up_is_told_from_the_work(
        self, world: World
    ) -> None:
        seen = await world.run(ray_job("echo never", STANDIN_RAY_FAILS="127.0.0.2"))
        assert seen.reason == "RayFailed"
        assert seen.message == "Ray's head did not start: the raylet did not start"
        none = ray_job("true").model_copy(update={"env": {"PATH": "/usr/bin:/bin"}})
        lacking = await world.run(none, run="run-1", template_hash="h1")
        missing = "has no program `ray`" in lacking.message
        assert (lacking.reason, missing) == ("CommandNotFound", True)
        assert lacking.hint == "add it: `image: {pip: [ray]}`"
        other = await world.run(ray_job("true", PYTHONPATH=""), run="run-2", template_hash="h2")
        assert other.reason == "RayFailed"
        assert "python3` has no package `ray`" in other.message

    @story
    async def test_ray_is_looked_for_where_the_image_says(self, world: World) -> None:
        whole = ray_job(DRIVER)
        env = whole.env
        image = Image(env={name: it for name, it in env.items() if name != "PYTHONPATH"})
        own = {name: it for name, it in env.items() if name == "PYTHONPATH"}
        seen = await world.run(whole.model_copy(update={"image": image, "env": own}))
        assert (seen.ok, seen.message) == (True, "")

    @story
    async def test_a_worker_that_breaks_down_ends_the_attempt_and_is_not_the_work(
        self, world: World
    ) -> None:
        ref = await world.start(ray_job(DRIVER + "sleep 600"))
        await world.log_holds(ref, b"2 ")
        workers = [pid for pid in processes_of(world.directory / "home") if _is_worker(pid)]
        os.kill(workers[0], 9)
        seen = await world.ended(ref)
        assert (seen.reason, seen.ok) == ("RayFailed", False)
        assert seen.message.startswith("node 1: Ray's worker on this node ended")

    @story
    async def test_term_reaches_the_work_and_leaves_its_cluster_standing(
        self, world: World
    ) -> None:
        text = (
            f"ask() {{ {DRIVER} }}; trap 'ask; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        )
        ref = await world.start(ray_job(text))
        await world.log_holds(ref, b"up")
        await world.provider.stop(ref, grace_s=30.0)
        seen = await world.ended(ref)
        assert seen.reason == "Stopped"
        assert b"2 127.0.0.2" in await world.log(ref)  # both nodes, while it saved

    @story
    async def test_one_node_has_a_cluster_of_its_own_too(self, world: World) -> None:
        ref = await world.start(ray_job(DRIVER + 'echo "${NNODES-none}"', 1))
        assert (await world.ended(ref)).ok
        assert (await world.log(ref)).split()[::3] == [b"1", b"none"]


def _is_worker(pid: int) -> bool:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it has just ended
    return b"--address=" in argv and b"ray.main" in argv


async def _none_left(world: World) -> bool:
    return processes_of(world.directory / "home") == []
