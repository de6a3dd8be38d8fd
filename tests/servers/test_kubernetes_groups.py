"""Groups of a TrainingRun in a cluster: a trainer that asks three servers by their names, each in a
pod of its own, under a real engine and against the emulator.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.provider_worlds import eventually
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import kubernetes_fleet
from tests.servers.fleets import Play, telling

PARTS = Path(__file__).parents[1] / "training" / "groups"
NAMESPACES = ("groups-end", "groups-restart", "groups-all", "groups-next")
ALL = ["rollout 0", "rollout 1", "rollout 2", "trainer 0"]


class GroupsFleet(kubernetes_fleet.Fleet):
    kind = "TrainingRun"

    def __init__(self, home: Path, *rest: Any, **options: Any) -> None:
        self.home = home
        super().__init__(home, *rest, **options)

    def begin(self, *, until: int, policy: str = "Group") -> None:
        """Begins a run whose trainer ends once the servers' attempt is `until`."""
        program = {name: (PARTS / f"{name}.py").read_text() for name in ("trainer", "server")}
        trainer = {
            "name": "trainer",
            "command": ["python3", "-c", program["trainer"]],
            "env": {"UNTIL_ATTEMPT": str(until)},
        }
        rollout = {
            "name": "rollout",
            "nodes": 3,
            "port": 8000,
            "command": ["python3", "-c", program["server"]],
            "restartPolicy": policy,
        }
        spec = {
            "placement": {"provider": self.name},
            "maxRestarts": 3,
            "retry": {"backoff": {"initial": "0.1s", "max": "0.2s"}},
            "template": {"terminationGracePeriodSeconds": 2},
            "groups": [trainer, rollout],
        }
        self.apply_kind("TrainingRun", "rl", spec)

    def printed(self) -> list[str]:
        """All lines of all nodes of all attempts, as they arrived here."""
        logs = (self.home / "kubernetes" / "jobs").glob("*/runs/*.log")
        return [line for it in logs for line in it.read_text(errors="replace").splitlines()]

    def begun(self, attempt: int) -> list[str]:
        """The nodes that began as this attempt of their group, once for each time."""
        mark = f" as attempt {attempt}"
        lines = [it.removesuffix(mark) for it in self.printed() if it.endswith(mark)]
        return sorted(it.replace(" listens", "").replace(" begins", "") for it in lines)

    async def answered(self) -> None:
        async def has() -> bool:
            return any(it.startswith("answered ") for it in self.printed())

        await eventually(has, "the trainer was answered by all servers")

    async def nothing_left(self) -> None:
        async def none() -> bool:
            kinds = (("jobs", "batch"), ("pods", ""), ("services", ""))
            return not any(self.emulator.objects(*it, self.namespace) for it in kinds)

        await eventually(none, "no Job, pod or Service is left")

    def kill_server(self, rank: int) -> None:
        """Ends the process of a server as the kernel does when memory runs out."""
        wanted = {"FLEETCTL_GROUP=rollout", f"FLEETCTL_GROUP_RANK={rank}"}
        for it in Path("/proc").glob("[0-9]*"):
            try:
                found = set((it / "environ").read_text(errors="replace").split("\0"))
            except OSError:
                continue  # it is gone, or another user's
            uid = self.store.resources.get("TrainingRun", "rl")
            assert uid is not None
            runs = {f"FLEETCTL_RUN={run.name}" for run, _ in self.store.runs.of(uid.uid)}
            if wanted <= found and runs & found:
                os.kill(int(it.name), 9)


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    with KubernetesEmulator(namespaces=NAMESPACES, nodes=[{"name": "plain"}]) as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Callable[[str], Play]:
    return lambda namespace: telling(partial(GroupsFleet, tmp_path / "home", emulator, namespace))


def test_a_trainer_finds_its_servers_by_name_and_its_end_is_theirs(
    play: Callable[[str], Play],
) -> None:
    async def tale(fleet: GroupsFleet) -> None:
        fleet.begin(until=1)
        status = await fleet.phase("Succeeded", "rl")
        assert status["reason"] == "Completed"
        (result,) = fleet.results("rl").values()
        assert result["servers"] == ["0", "1", "2"]
        assert all(it.endswith(f".{fleet.namespace}.svc:8000") for it in result["addresses"])
        assert fleet.begun(1) == ALL
        assert len(fleet.made()) == 4
        await fleet.nothing_left()

    play("groups-end")(tale)


def test_a_killed_server_restarts_its_group_alone_under_the_same_names(
    play: Callable[[str], Play],
) -> None:
    async def tale(fleet: GroupsFleet) -> None:
        fleet.begin(until=2)
        await fleet.answered()
        fleet.kill_server(1)
        await fleet.phase("Succeeded", "rl")
        assert fleet.begun(1) == ALL and fleet.begun(2) == ALL[:3]
        assert [it for it in fleet.printed() if "trainer 0 begins" in it] == [
            "trainer 0 begins as attempt 1"
        ]
        await fleet.nothing_left()

    play("groups-restart")(tale)


def test_under_all_every_group_restarts_with_one_that_failed(play: Callable[[str], Play]) -> None:
    async def tale(fleet: GroupsFleet) -> None:
        fleet.begin(until=2, policy="All")
        await fleet.answered()
        fleet.kill_server(0)
        await fleet.phase("Succeeded", "rl")
        assert fleet.begun(1) == fleet.begun(2) == ALL
        await fleet.nothing_left()

    play("groups-all")(tale)


def test_the_next_controller_goes_on_with_groups_and_begins_nothing_twice(
    play: Callable[[str], Play],
) -> None:
    async def tale(fleet: GroupsFleet) -> None:
        fleet.begin(until=2)
        await fleet.answered()
        await fleet.close()
        fleet._open()
        await asyncio.sleep(0)
        fleet.kill_server(2)
        await fleet.phase("Succeeded", "rl")
        assert fleet.begun(1) == ALL and fleet.begun(2) == ALL[:3]
        await fleet.nothing_left()

    play("groups-next")(tale)
