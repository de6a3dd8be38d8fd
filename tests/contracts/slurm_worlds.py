"""Worlds of provider `slurm`: a real Slurm for all worlds of a module; each world has a shared
directory of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.slurm.slurm_provider import SlurmProvider
from tests.contracts.provider_worlds import World
from tests.machines.slurm_cluster import SlurmCluster

QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)


class SlurmWorld(World):
    def __init__(self, directory: Path, cluster: SlurmCluster, **settings: object) -> None:
        self.cluster = cluster
        self.root = Path(os.path.realpath(directory)) / "shared"
        self.settings: dict[str, object] = {"sharedDir": str(self.root), **settings}
        self.declared = {"slurm": self.settings}
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return SlurmProvider(
            self.directory / "home",
            store_id=store_id,
            notify=notify,
            account=lambda: Account("slurm", "slurm", settings=self.settings),
            pace=QUICK,
        )

    async def lose(self, ref: RunRef) -> None:
        """Kill the supervisor of its box, as the kernel does when memory runs out."""
        box = ref.handle.partition("/")[2].partition("@")[0]
        try:
            pid = int((self.root / "boxes" / box / "state" / "supervisor").read_text() or 0)
            os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        """What its job has of the cluster."""
        text = self.cluster.run("scontrol", "show", "job", "-o", ref.handle.partition("/")[0])
        found = dict(it.split("=", 1) for it in text.split() if "=" in it)
        asked = found["MinMemoryNode"]
        memory = int(asked.rstrip("GM")) * (1024**3 if "G" in asked else 1024**2)
        return {"cpu": int(found["CPUs/Task"]), "memory": memory}

    async def close(self) -> None:
        for backend in self.backends:
            for box in await backend.owned():
                self.cluster.run("scancel", "--quiet", box.handle.partition("/")[0])
        await super().close()
