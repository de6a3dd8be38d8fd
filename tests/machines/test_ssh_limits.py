"""Cores and memory of tasks on a host of provider `ssh`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.provider_worlds import python, script
from tests.contracts.ssh_worlds import SshWorld
from tests.machines.memory_suite import end_for_memory
from tests.machines.ssh_server import SshServer
from tests.machines.test_ssh_hosts import play

pytestmark = pytest.mark.needs("sshd")
CORES = sorted(os.sched_getaffinity(0))
SHOWS = "import os, time\nprint(sorted(os.sched_getaffinity(0)), flush=True)\ntime.sleep(600)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "server") as one:
        yield one


def test_tasks_have_as_many_cores_as_they_ask_for_and_not_those_of_others(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        seen: list[int] = []
        for core in CORES[:2]:
            ref = await world.start(python(SHOWS, resources={"cpu": 1}), run=f"run-{core}")
            await world.log_holds(ref, b"]\n")
            seen += json.loads(await world.log(ref))
        assert sorted(seen) == sorted(set(seen))
        assert set(seen) <= set(CORES)
        assert len(seen) == len(CORES[:2])

    play(tmp_path, server, tale)


def test_programs_of_a_task_count_its_cores_and_a_task_without_a_wish_has_all(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        for run, resources, cores in (
            ("run-a", {"cpu": 0.5}, 1),
            ("run-b", {"cpu": len(CORES)}, len(CORES)),
            ("run-c", {}, len(CORES)),
        ):
            text = "echo cores $(nproc)"
            ref = await world.start(script(text, resources=resources), run=run)
            assert (await world.ended(ref)).ok
            assert await world.log(ref) == f"cores {cores}\n".encode()

    play(tmp_path, server, tale)


@pytest.mark.parametrize("how", ["at once", "together"])
def test_a_task_over_its_memory_ends_for_it(tmp_path: Path, server: SshServer, how: str) -> None:
    play(tmp_path, server, lambda world: end_for_memory(world, how))
