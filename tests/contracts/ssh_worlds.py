"""Worlds of provider `ssh`: a real OpenSSH server for all worlds of a module; each world has a
directory of its own on it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.ssh.ssh_provider import SshProvider
from tests.contracts.provider_worlds import World
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
