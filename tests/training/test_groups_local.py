"""Groups of a TrainingRun on this machine: a trainer that asks three servers, each a real process,
under a real controller.

Each process writes a line when it begins, so that work that began twice shows, whatever the store
says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.daemon.client.spawn import find_holder_pid
from tests.contracts.local_worlds import processes_of, stop_supervisors
from tests.inside import program
from tests.servers import forked

PARTS = Path(__file__).with_name("groups")
WAIT_S = 300.0  # against a hang alone
LOOK_S = 0.05
ROLLOUT_GPU = {"resources": {"gpu": "A100:1"}}


class GroupsWorld:
    """One store with a TrainingRun `rl`, whose processes share the volume `shared`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.shared = home / "local" / "volumes" / "shared"

    def command(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "FLEETCTL_HOME": str(self.home)}
        return forked.run(words, env=env, stdin=stdin, hang_s=WAIT_S)

    def apply(self, **changes: Any) -> subprocess.CompletedProcess[str]:
        spec = build_spec() | changes
        manifest = {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": "rl"},
            "spec": spec,
        }
        return self.command("apply", "-f", "-", stdin=json.dumps(manifest))

    def begin(self, **changes: Any) -> None:
        """Applies it, and waits until the trainer has had an answer of every server."""
        done = self.apply(**changes)
        assert done.returncode == 0, done.stderr
        self.until(lambda: self.steps() >= 1, "the trainer was answered by all servers")

    def status(self) -> dict[str, Any]:
        done = self.command("get", "tr/rl", "-o", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout)["status"])

    def begun(self) -> Counter[str]:
        """Counts the begins of each `group rank attempt`."""
        path = self.shared / "begun"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def attempts(self, group: str) -> set[int]:
        return {int(it.split()[2]) for it in self.begun() if it.startswith(f"{group} ")}

    def steps(self) -> int:
        """Steps of the trainer, at each of which every server that it knows has answered."""
        path = self.shared / "steps"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def pid(self, group: str, rank: int) -> int:
        """The process of a node that works."""
        wanted = {f"FLEETCTL_GROUP={group}", f"FLEETCTL_GROUP_RANK={rank}"}
        (found,) = (it for it in self.working() if wanted <= variables_of(it))
        return found

    def goes_on(self, what: str) -> None:
        """Waits until all servers have answered the trainer in a step that begins from now on."""
        wanted = self.steps() + 2
        self.until(lambda: self.steps() >= wanted, what)

    def finish(self) -> None:
        """Lets the trainer succeed."""
        (self.shared / "finish").touch()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline_s, f"not in time: {what}; {self.status()}"
            time.sleep(LOOK_S)

    def ended(self) -> dict[str, Any]:
        self.until(lambda: self.status()["phase"] in ("Succeeded", "Failed"), "it ended")
        return self.status()

    def nothing_left(self) -> None:
        self.until(lambda: not self.working(), "no process is left")

    def working(self) -> list[int]:
        """The processes of trainer and servers that live."""
        return processes_of(self.home)

    def kill_controller(self) -> None:
        pid = find_holder_pid(self.home)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.until_gone(pid)

    def until_gone(self, pid: int) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while find_holder_pid(self.home) == pid:
            assert time.monotonic() < deadline_s
            time.sleep(LOOK_S)


def variables_of(pid: int) -> set[str]:
    return set(Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"))


def build_spec() -> dict[str, Any]:
    trainer = {"name": "trainer", "command": program(PARTS / "trainer.py")}
    rollout = {
        "name": "rollout",
        "nodes": 3,
        "port": 8000,
        "command": program(PARTS / "server.py"),
    }
    return {
        "maxRestarts": 3,
        "retry": {"backoff": {"initial": "0.1s", "max": "0.2s"}},
        "template": {
            "volumes": [{"name": "shared", "mountPath": "/shared"}],
            "terminationGracePeriodSeconds": 5,
        },
        "groups": [trainer, rollout],
    }


@pytest.fixture(params=["namespaces", "process"])
def world(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GroupsWorld]:
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", request.param)
    made = GroupsWorld(tmp_path / "home")
    yield made
    made.command("delete", "tr/rl", "--yes")
    made.command("down", "--force")
    stop_supervisors(made.home)


def test_the_success_of_the_trainer_ends_the_servers_and_the_run(world: GroupsWorld) -> None:
    world.begin()
    world.finish()
    status = world.ended()
    assert (status["phase"], status["reason"]) == ("Succeeded", "Completed")
    groups = {it["name"]: (it["nodes"], it["state"]) for it in status["groups"]}
    assert groups == {"trainer": (1, "Succeeded"), "rollout": (3, "Stopped")}
    world.nothing_left()
    assert sorted(world.begun()) == ["rollout 0 1", "rollout 1 1", "rollout 2 1", "trainer 0 1"]
    described = world.command("describe", "tr/rl").stdout
    assert "Groups:      2 = 1 succeeded" in described and "tage" not in described.lower()
    shown = world.command("logs", "tr/rl", "--group", "rollout", "--node", "2").stdout
    assert shown.count("rollout 2 listens") == 1 and "trainer" not in shown
    result = json.loads(world.command("results", "tr/rl", "-o", "jsonl").stdout.splitlines()[0])
    assert result["result"]["servers"] == ["0", "1", "2"]


def test_a_killed_server_restarts_its_group_alone(world: GroupsWorld) -> None:
    world.begin()
    os.kill(world.pid("rollout", 1), signal.SIGKILL)
    world.until(lambda: world.attempts("rollout") == {1, 2}, "the servers began again")
    world.goes_on("the trainer was answered at the old addresses")
    world.finish()
    assert world.ended()["phase"] == "Succeeded"
    assert world.attempts("trainer") == {1}
    assert set(world.begun().values()) == {1}
    world.nothing_left()


def test_under_all_every_group_restarts_with_one_that_failed(world: GroupsWorld) -> None:
    spec = build_spec()
    spec["groups"][1]["restartPolicy"] = "All"
    world.begin(groups=spec["groups"])
    os.kill(world.pid("rollout", 0), signal.SIGKILL)
    world.until(
        lambda: world.attempts("rollout") == world.attempts("trainer") == {1, 2}, "all began again"
    )
    world.finish()
    assert world.ended()["phase"] == "Succeeded"
    assert set(world.begun().values()) == {1}
    world.nothing_left()


def test_a_trainer_that_fails_for_good_fails_the_run_and_ends_the_servers(
    world: GroupsWorld,
) -> None:
    world.begin(maxRestarts=0)
    os.kill(world.pid("trainer", 0), signal.SIGKILL)
    status = world.ended()
    assert (status["phase"], status["reason"]) == ("Failed", "GroupFailed")
    assert status["message"] == "group trainer failed with Signal:KILL; maxRestarts is 0"
    world.nothing_left()


def test_a_group_that_is_resized_restarts_alone_and_nothing_runs_again(world: GroupsWorld) -> None:
    world.begin()
    trainer = world.pid("trainer", 0)
    done = world.command("scale", "tr/rl", "--group", "rollout", "5", "--yes")
    assert done.returncode == 0, done.stderr
    world.until(lambda: world.begun()["rollout 4 2"] == 1, "five servers work")
    world.goes_on("the trainer goes on")
    assert world.pid("trainer", 0) == trainer and world.attempts("trainer") == {1}
    world.finish()
    status = world.ended()
    assert status["phase"] == "Succeeded"
    assert [it["nodes"] for it in status["groups"]] == [1, 5]
    wrong = world.command("scale", "tr/rl", "--group", "rolout", "5")
    assert wrong.returncode == 4 and "it has `trainer`, `rollout`" in wrong.stderr
    world.nothing_left()


def test_a_killed_controller_is_followed_by_one_that_begins_nothing_twice(
    world: GroupsWorld,
) -> None:
    world.begin()
    for _ in range(3):
        world.kill_controller()
        world.goes_on("the work goes on without a controller")
        assert world.command("apply", "-f", "-", stdin=json.dumps(NOTE)).returncode == 0
    world.finish()
    assert world.ended()["phase"] == "Succeeded"
    assert sorted(world.begun()) == ["rollout 0 1", "rollout 1 1", "rollout 2 1", "trainer 0 1"]
    assert set(world.begun().values()) == {1}
    world.nothing_left()


NOTE = {
    "apiVersion": "fleetctl.dev/v1alpha1",
    "kind": "Volume",
    "metadata": {"name": "other"},
    "spec": {},
}


def test_where_not_all_groups_find_devices_none_begins(
    world: GroupsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_LOCAL_GPUS", "A100:3")
    groups = [{**it, **ROLLOUT_GPU} for it in build_spec()["groups"]]
    assert world.apply(groups=groups).returncode == 0
    why = "all groups together need 4 x A100"
    world.until(lambda: why in json.dumps(world.status()), "it waits for all devices")
    assert world.begun() == Counter() and world.working() == []
