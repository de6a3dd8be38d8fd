"""Worlds of provider `local`: a state directory in a test's own, and a look at its supervisors and
processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.providers.local.supervisor.run import procs
from tests.contracts.provider_worlds import World


class LocalWorld(World):
    # Of a file, which is the limit that a task itself can read.
    resources: Mapping[str, Any] = {"cpu": 2, "disk": 3 * 1024**3}

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        return {"cpu": int(printed["threads"] or 0), "disk": printed["file"]}

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return LocalProvider(self.directory / "home", store_id=store_id, notify=notify)

    async def lose(self, ref: RunRef) -> None:
        """Kill the supervisor, as the kernel does when memory runs out."""
        os.kill(supervisor_pid(self.directory / "home", ref), signal.SIGKILL)


def stop_supervisors(home: Path) -> None:
    for directory in (home / "local" / "keepers").glob("*"):
        while not supervisor_locks.lock_is_free(directory):
            try:
                os.kill(_pid_of(directory), signal.SIGTERM)
                break
            except (FileNotFoundError, ConnectionRefusedError, ProcessLookupError):
                time.sleep(0.01)  # it is coming up, or leaving


def supervisor_pid(home: Path, ref: RunRef) -> int:
    return _pid_of(home / "local" / "keepers" / ref.handle.partition("/")[0])


def _pid_of(directory: Path) -> int:
    """Who listens on the supervisor's socket, in our own process numbers."""
    with (
        socket.socket(socket.AF_UNIX) as probe,
        supervisor_locks.short_path(directory / "sock") as path,
    ):
        probe.connect(path)
        about = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", about)[0])


def processes_of(home: Path) -> list[int]:
    """Every process on this machine that carries the mark of a supervisor of this home."""
    found = []
    for lock in (home / "local" / "keepers").glob("*/lock"):
        base = json.loads(lock.read_text())["mark_base"]
        found += procs.find_marked(base, base + procs.RUNS_PER_SUPERVISOR)
    return found
