"""kill -9 of a real controller and of the real software that its work runs on, at random moments;
then the whole truth is checked: nothing begun twice, nothing lost, nothing left.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from pathlib import Path
from random import Random

from tests.machines.container_images import container_settings, containers_of, python_image
from tests.machines.slurm_cluster import NODES, SlurmCluster
from tests.machines.ssh_server import SshServer
from tests.soak.killing import Life

# As TASK of tests/soak/killing.py, where a host has no Python.
SCRIPT = """
echo "$TASK_JOB $JOB_COMPLETION_INDEX $FLEETCTL_ATTEMPT" >>"$TASK_BEGUN"
sleep 0.0$((JOB_COMPLETION_INDEX % 4 * 2))
printf '{"job":"%s","index":%s}' "$TASK_JOB" "$JOB_COMPLETION_INDEX" >"$FLEETCTL_RESULT"
"""
LEFT_WAIT_S = 120.0  # against a hang alone: boxes go a little after their end is confirmed


class MachineLife(Life):
    """A life whose work runs on provider `own`. root: of its boxes and volumes."""

    def __init__(self, root: Path, random: Random) -> None:
        super().__init__(root, random)
        self.machine = root / "machine"
        self.variables: dict[str, str] = {}  # further ones of its commands and controllers

    @property
    def env(self) -> dict[str, str]:
        return {**super().env, "PYTHONDONTWRITEBYTECODE": "1", **self.variables}

    @abstractmethod
    def declaration(self) -> dict[str, object]:
        """Returns the spec of the Provider object."""

    @abstractmethod
    def strike(self) -> None:
        """Kills a process that the work depends on, and starts what a machine would start again."""

    def mount(self) -> str:
        return str(self.root / "begun")

    def more(self) -> dict[str, object]:
        return {"placement": {"provider": "own"}}

    def ledgers(self) -> list[Path]:
        return list(self.machine.glob("volumes/*/log"))

    def declare(self) -> None:
        document = {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "Provider",
            "metadata": {"name": "own"},
            "spec": self.declaration(),
        }
        done = self.command("apply", "-f", "-", stdin=json.dumps(document))
        assert done.returncode == 0, done.stderr

    def strike_controller(self) -> None:
        self.kill()
        self.start()

    def leftovers(self) -> list[str]:
        """Returns sentences about boxes and jobs that stay after the end of all work."""
        until = time.monotonic() + LEFT_WAIT_S
        while (left := self.remains()) and time.monotonic() < until:
            time.sleep(0.2)
        return left

    def remains(self) -> list[str]:
        """Returns sentences about boxes and jobs that are there now."""
        place = self.machine / "boxes"
        names = [it.name for it in place.iterdir() if it.name[0] != "."] if place.exists() else []
        return [f"box {name} is left" for name in names]


class SshLife(MachineLife):
    """A life beside an SSH server."""

    def __init__(self, root: Path, random: Random, server: SshServer) -> None:
        super().__init__(root, random)
        self.server = server

    def declaration(self) -> dict[str, object]:
        host = {**self.server.host, "directory": str(self.machine), "slots": 4}
        return {"type": "ssh", "ssh": {"hosts": [host], "config": str(self.server.config)}}

    def strike(self) -> None:
        choice = self.random.choice(("controller", "sessions", "server"))
        if choice == "controller":
            self.strike_controller()
            return
        if choice == "server":
            self.server.stop()
            self.server.start()
        else:
            self.server.cut()
        self.kills += 1


class ShellLife(SshLife):
    """A life beside an SSH server whose host has no Python."""

    def work(self) -> dict[str, str]:
        return {"script": SCRIPT}

    def remains(self) -> list[str]:
        place = self.machine / "shell" / "boxes"
        names = [it.name for it in place.iterdir() if it.name[0] != "."] if place.exists() else []
        return [f"box {name} is left" for name in names]


class ContainerLife(SshLife):
    """A life beside an SSH server, whose tasks run in containers of a real podman."""

    def declaration(self) -> dict[str, object]:
        found = super().declaration()
        ssh = found["ssh"]
        assert isinstance(ssh, dict)
        return {**found, "ssh": {**ssh, "container": container_settings()}}

    def manifest(self, name: str) -> str:
        document = json.loads(super().manifest(name))
        document["spec"]["template"]["image"] = {"registry": python_image()}
        return json.dumps(document)

    def remains(self) -> list[str]:
        left = [f"container {name} is left" for name in containers_of(self.machine)]
        return [*super().remains(), *left]


class SlurmLife(MachineLife):
    """A life beside a cluster."""

    def __init__(self, root: Path, random: Random, cluster: SlurmCluster) -> None:
        super().__init__(root, random)
        self.cluster = cluster

    @property
    def env(self) -> dict[str, str]:
        return {**super().env, **self.cluster.env}

    def declaration(self) -> dict[str, object]:
        return {"type": "slurm", "slurm": {"sharedDir": str(self.machine)}}

    def strike(self) -> None:
        choice = self.random.choice(("controller", "ctld", *NODES))
        if choice == "controller":
            self.strike_controller()
            return
        if choice == "ctld":
            self.cluster.kill("ctld")
            self.cluster.start("slurmctld")
        else:
            self.cluster.kill(f"d.{choice}")
            self.cluster.start("slurmd", "-N", choice)
        self.kills += 1

    def remains(self) -> list[str]:
        jobs = self.cluster.run("squeue", "--noheader", "-o", "%i %T")
        return [*super().remains(), *(f"job {it} is left" for it in jobs.splitlines())]


def live_through(life: MachineLife, *, kills: int) -> list[str]:
    """Strikes `kills` times; returns sentences about every promise that was broken."""
    life.declare()
    life.start()
    while life.kills < kills:
        if len(life.acknowledged) < 2 + kills // 10:
            life.apply()
        time.sleep(life.random.uniform(0.0, 0.8))
        life.strike()
    life.kill()
    life.settle()
    found = life.findings()
    life.delete_all()
    # Before `down`: jobs that a killed scheduler takes up again are the controller's to cancel.
    left = life.leftovers()
    return [*found, *left, *life.end()]
