"""Worlds of provider `ssh`: a real OpenSSH server for all worlds of a module; each world has a
directory of its own on it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef, RunRequest
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.ssh.ssh_provider import SshProvider
from fleetctl.specs.blocks.template import Image, Template
from tests.contracts.provider_worlds import World
from tests.machines.container_images import (
    container_settings,
    containers_of,
    podman,
    python_image,
)
from tests.machines.ssh_server import SshServer

QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)


class SshWorld(World):
    def __init__(self, directory: Path, server: SshServer, **host: object) -> None:
        self.server = server
        self.root = Path(os.path.realpath(directory)) / "machine"
        host = {**server.host, "directory": str(self.root), "slots": 8, **host}
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
