"""Provider `daytona` against the suite of all providers, at whatever server the environment names.

Collected only when it is named: it costs money at the real one. Every world ends its sandboxes, so
that no more live at once than one test makes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from fleetctl.providers.base import Backend, RunRef
from fleetctl.providers.daytona.provider import DaytonaProvider
from specs.template import Template
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, eventually
from tests.live.daytona import NAME_VARIABLE


class LiveWorld(World):
    def __init__(self, directory: Path) -> None:
        self.corner = f"{os.environ[NAME_VARIABLE]}-{token_hex(2)}"
        self.volume = f"{self.corner}-volume"
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        home = self.directory / "home"
        return DaytonaProvider(home, store_id=f"{self.corner}-{store_id}", notify=notify)

    async def lose(self, ref: RunRef) -> None:
        """Somebody deletes it in the dashboard: nobody can order an eviction."""
        import daytona
        from daytona.common.errors import DaytonaNotFoundError

        async with daytona.AsyncDaytona() as client:
            try:
                sandbox = await client.get(ref.handle)
            except DaytonaNotFoundError:
                return  # its run has ended, and it went with that
            await sandbox.delete(wait=True)

    async def close(self) -> None:
        try:
            for backend in self.backends:
                left = {one.handle: one.sandbox for one in await backend.owned()}
                left |= {handle: run for run, handle in self.handles.items()}
                for handle, sandbox in left.items():
                    await backend.stop(RunRef("", sandbox, handle, 0, ""), grace_s=0.0)
            await eventually(self._nothing_lives, "every sandbox of the test was over")
        finally:
            await super().close()

    async def _nothing_lives(self) -> bool:
        return not any([await backend.owned() for backend in self.backends])


class TestLive(ProviderSuite):
    def world(self, tmp_path: Path) -> World:
        return LiveWorld(tmp_path)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})
