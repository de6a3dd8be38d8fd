"""Shared by the tests of provider `ssh`: a story with a world, and the processes of a machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tests.contracts.ssh_worlds import SshWorld
from tests.machines.ssh_server import SshServer

W = TypeVar("W", bound=SshWorld)
SMI = "#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: x)'\necho 'GPU 1: NVIDIA A100 (UUID: y)'\n"
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


def play(
    directory: Path,
    server: SshServer,
    tale: Callable[[W], Awaitable[None]],
    world_of: type[W] = SshWorld,  # type: ignore[assignment]
    **host: object,
) -> None:
    async def whole() -> None:
        world = world_of(directory, server, **host)
        try:
            await tale(world)
        finally:
            for backend in world.backends:
                for box in await backend.owned():
                    await backend._sandboxes.end(box.handle)  # type: ignore[attr-defined]
            await world.close()

    asyncio.run(whole())


def lives(pid: int) -> bool:
    """Whether a process is there and is no zombie, which is for the first process to collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_of(pid: int, parent: int) -> bool:
    """Returns whether a process is another one, or descends from it."""
    while pid > 1 and pid != parent:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(text.rpartition(")")[2].split()[1])
    return pid == parent


def clients_of(server: SshServer) -> list[int]:
    """The processes that hold a connection to the server."""
    rows = [it.split() for it in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    held = {f"socket:[{it[9]}]" for it in rows if it[2].endswith(f":{server.port:04X}")}
    found = []
    for about in Path("/proc").glob("[0-9]*"):
        try:
            opened = {os.readlink(it) for it in (about / "fd").iterdir()}
        except OSError:
            continue
        if held & opened:
            found.append(int(about.name))
    return found
