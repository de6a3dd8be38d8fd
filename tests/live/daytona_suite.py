"""Provider `daytona` against the suite of all providers, at whatever server the environment names.

Collected only when it is named: it costs money at the real one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.daytona.daytona_provider import DaytonaProvider
from tests.contracts.provider_worlds import World
from tests.live.daytona import NAME_VARIABLE
from tests.live.live_world import LiveSuite, LiveWorld


class DaytonaWorld(LiveWorld):
    def __init__(self, directory: Path) -> None:
        self.corner = f"{os.environ[NAME_VARIABLE]}-{token_hex(2)}"
        self.volume = f"{self.corner}-volume"
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        home = self.directory / "home"
        return DaytonaProvider(home, store_id=f"{self.corner}-{store_id}", notify=notify)

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        async with daytona_client() as client:
            found = await client.get(ref.handle)
        return {"cpu": found.cpu, "memory": found.memory * 1024**3}

    async def allowed_hosts(self, ref: RunRef) -> list[str]:
        async with daytona_client() as client:
            found = await client.get(ref.handle)
        return str(found.network_allow_list).split(",")

    async def lose(self, ref: RunRef) -> None:
        """Somebody deletes it in the dashboard: nobody can order an eviction."""
        from daytona.common.errors import DaytonaNotFoundError

        async with daytona_client() as client:
            try:
                sandbox = await client.get(ref.handle)
            except DaytonaNotFoundError:
                return  # its run has ended, and it went with that
            await sandbox.delete(wait=True)

    async def left(self, backend: Backend) -> dict[str, str]:
        """Also those that no list shows yet."""
        return await super().left(backend) | {handle: run for run, handle in self.handles.items()}


def daytona_client() -> Any:
    import daytona

    return daytona.AsyncDaytona()


class TestLive(LiveSuite):
    sort = "daytona"

    def world(self, tmp_path: Path) -> World:
        return DaytonaWorld(tmp_path)
