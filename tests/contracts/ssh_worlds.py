"""Worlds of provider `ssh`: a real OpenSSH server for all worlds of a module; each world has a
directory of its own on it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef, RunRequest
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.ssh.ssh_provider import SshProvider
from fleetctl.specs.blocks.template import Image, Template
from tests.contracts.provider_worlds import World, command
from tests.machines.container_images import (
    container_settings,
    containers_of,
    podman,
    python_image,
)
from tests.machines.ssh_server import SshServer

# A program of the user's own that keeps what the guest in Python brings to a task of `python`.
PROGRAM = """
import json, os, sys
with open(os.environ["FLEETCTL_PARAMS"]) as file:
    params = json.load(file)
volumes = [it for it in os.environ if it.startswith("FLEETCTL_VOLUME_")]
volume = os.environ[volumes[0]] if volumes else ""
def SUBMIT(**result):
    with open(os.environ["FLEETCTL_RESULT"], "w") as file:
        json.dump(result, file)
def report(**values):
    with open(os.environ["FLEETCTL_METRICS"], "a") as file:
        file.write(json.dumps(values) + chr(10))
def save_to_volume(name, text):
    with open(os.path.join(volume, name), "w") as file:
        file.write(text)
def load_from_volume(name):
    path = os.path.join(volume, name)
    if not os.path.exists(path):
        return "file not found"
    with open(path) as file:
        return file.read()
names = {name: value for name, value in params.items() if name.isidentifier()}
exec(compile(sys.argv[1], "task", "exec"), {**globals(), **names})
"""
QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)


class SshWorld(World):
    def __init__(self, directory: Path, server: SshServer, **host: object) -> None:
        self.server = server
        top = self.root = Path(os.path.realpath(directory)) / "machine"
        host = {**server.host, "directory": str(top), "slots": 8, **host}
        self.settings: dict[str, object] = {"hosts": [host], "config": str(server.config)}
        self.declared = {"ssh": self.settings}
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return SshProvider(
            self.directory / "home",
            store_id=store_id,
            notify=notify,
            account=lambda: Account("ssh", "ssh", settings=self.settings),
            pace=QUICK,
        )

    async def lose(self, ref: RunRef) -> None:
        """Kill the supervisor of its box, as the kernel does when memory runs out."""
        pid = self.supervisor(ref)
        if pid:
            os.kill(pid, signal.SIGKILL)

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        """What its box claims of the host."""
        box = ref.handle.rpartition("/")[2].partition("@")[0]
        found = json.loads((self.root / "boxes" / box / "box.json").read_text())
        return {name: found[name] for name in self.resources}

    def supervisor(self, ref: RunRef) -> int:
        """Its process; 0 when the box is gone."""
        box = ref.handle.rpartition("/")[2].partition("@")[0]
        try:
            return int((self.root / "boxes" / box / "state" / "supervisor").read_text() or 0)
        except FileNotFoundError:
            return 0

    def boxes(self) -> list[str]:
        place = self.root / "boxes"
        return sorted(it.name for it in place.iterdir()) if place.exists() else []


class ShellWorld(SshWorld):
    """A host without Python. A task of `python` runs here as a program of its user's own."""

    def __init__(self, directory: Path, server: SshServer, **host: object) -> None:
        super().__init__(directory, server, **host)
        self.root /= "shell"

    def order(
        self, template: Template | None = None, *, run: str = "run-0", **changes: Any
    ) -> RunRequest:
        made = super().order(template, run=run, **changes)
        asked = made.template
        if asked.python is None:
            return made
        fields = {name: getattr(asked, name) for name in asked.model_fields_set - {"python"}}
        program = command(sys.executable, "-uc", PROGRAM, asked.python)
        return replace(made, template=program.model_copy(update=fields))

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        box = ref.handle.rpartition("/")[2].partition("@")[0]
        claim = (self.root / "boxes" / box / "claim").read_text().splitlines()[2]
        return {name: json.loads(claim)[name] for name in self.resources}

    def boxes(self) -> list[str]:
        return [it for it in super().boxes() if not it.startswith(".")]


class ContainerWorld(SshWorld):
    """Its tasks have an image of a registry, unless they name what is to be installed."""

    def __init__(self, directory: Path, server: SshServer, **host: object) -> None:
        super().__init__(directory, server, **host)
        self.settings["container"] = container_settings()

    def order(
        self, template: Template | None = None, *, run: str = "run-0", **changes: Any
    ) -> RunRequest:
        order = super().order(template, run=run, **changes)
        if order.template.image is not None:
            return order
        image = Image(registry=python_image())
        return replace(order, template=order.template.model_copy(update={"image": image}))

    def supervisor(self, ref: RunRef) -> int:
        """Returns its process, which is the first one of the container; 0 when that is gone."""
        name = f"fleetctl-{ref.handle.rpartition('/')[2].replace('@', '-')}"
        return int(podman("ps", "--filter", f"name={name}", "--format", "{{.Pid}}") or 0)

    def containers(self) -> list[str]:
        return containers_of(self.root)
