"""Provider `modal` against the suite of all providers, at whatever server the environment names.

Collected only when it is named: it costs money at the real one. Every world ends its sandboxes, so
that no more live at once than one test makes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from fleetctl.providers.base import Backend, RunRef
from fleetctl.providers.modal.provider import ModalProvider
from specs.template import Template
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, eventually


class LiveWorld(World):
    def __init__(self, directory: Path) -> None:
        self.salt = token_hex(4)
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        home = self.directory / "home"
        return ModalProvider(home, store_id=f"{store_id}-{self.salt}", notify=notify)

    async def lose(self, ref: RunRef) -> None:
        """Somebody ends it in the dashboard: nobody can order a preemption."""
        import modal

        sandbox = await modal.Sandbox.from_id.aio(ref.handle)
        await sandbox.terminate.aio()

    async def close(self) -> None:
        try:
            for backend in self.backends:
                for left in await backend.owned():
                    await backend.stop(RunRef("", left.sandbox, left.handle, 0, ""), grace_s=0.0)
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
