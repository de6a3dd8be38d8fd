"""Services beside local work, in both tiers: what becomes of them when their supervisor is killed,
when a sandbox is used again, and where there are several nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.nodes.gang import node_name
from fleetctl.guest.supervision.services.names import service_name
from fleetctl.providers.rundir.run_log_reader import RunLogReader
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, with_nodes
from tests.contracts.local_worlds import LocalWorld, processes_of, stop_supervisors
from tests.contracts.provider_services import SERVER
from tests.contracts.provider_worlds import eventually, python, script, story

# Its child has left its session, and neither ends when it is asked to.
STUBBORN = "trap '' TERM; (trap '' TERM; exec setsid sleep 600) & while :; do sleep 600; done"


def service(text: str, **fields: Any) -> dict[str, Any]:
    return {"name": "beside", "script": text, **fields}


class Services:
    tier = ""

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_a_supervisor_that_is_killed_leaves_no_service(self, world: LocalWorld) -> None:
        ref = await world.start(script("echo begun; sleep 600", services=[SERVER]), params={"x": 1})
        await world.log_holds(ref, b"begun")
        home = world.directory / "home"
        assert len(processes_of(home)) >= 3  # who leads, the work and the service
        await world.lose(ref)
        await world.lost(ref)

        async def gone() -> bool:
            return not processes_of(home)

        await eventually(gone, "all processes of the run were gone")

    @story
    async def test_what_a_service_started_ends_with_a_run_that_is_stopped(
        self, world: LocalWorld
    ) -> None:
        ready = {"command": ["test", "-e", "/proc/self"], "intervalSeconds": 0.05}
        services = [service(STUBBORN, ready=ready)]
        work = script("echo begun; sleep 600", services=services)
        ref = await world.start(work)
        await world.log_holds(ref, b"begun")
        await world.provider.stop(ref, grace_s=0.2)
        assert (await world.ended(ref)).reason == "Stopped"
        assert processes_of(world.directory / "home") == []

    @story
    async def test_services_begin_and_end_with_each_run_of_a_sandbox(
        self, world: LocalWorld
    ) -> None:
        up = {"command": ["sh", "-c", "test -e up-$FLEETCTL_RUN"]}
        counts = service("echo begun >>count; touch up-$FLEETCTL_RUN; exec sleep 600", ready=up)
        work = python("SUBMIT(lines=open('count').read().count('begun'))", services=[counts])
        first = world.order(work, reusable=True)
        assert (await world.ended(await world.begin(first))).sandbox_open
        second = world.order(work, run="run-1", sandbox="run-0", reusable=False)
        seen = await world.ended(await world.begin(second))
        assert json.loads(seen.result or "") == {"lines": 2}

    @story
    async def test_each_node_has_services_of_its_own(self, world: LocalWorld) -> None:
        up = {"command": ["test", "-e", "up"]}
        says = service("echo beside node $NODE_RANK; touch up; exec sleep 600", ready=up)
        template = with_nodes(
            script("true", services=[says]), NodeRange(min=2, max=2), None, NO_RAY
        )
        ref = await world.start(template)
        assert (await world.ended(ref)).ok
        runs = world.directory / "home" / "local" / "jobs" / "uid-1" / "runs"
        for node in (0, 1):
            log = RunLogReader(runs, service_name(node_name(ref.run, node), "beside"))
            assert log.read(0)[0] == f"beside node {node}\n".encode()
        assert processes_of(world.directory / "home") == []


class TestNamespaces(Services):
    tier = "namespaces"


class TestProcess(Services):
    tier = "process"
