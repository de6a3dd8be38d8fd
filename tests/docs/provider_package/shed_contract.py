"""The contract of fleetctl.testing, held to provider `shed`: run where both are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetctl_shed.backend import open_backend
from fleetctl_shed.host import kill_process, processes_of

from fleetctl.providers import Account, Backend, RunRef, Template
from fleetctl.testing import ProviderContract, ProviderWorld, command_task


class ShedWorld(ProviderWorld):
    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        settings = {"root": str(self.directory / "shed")}
        account = Account("shed-a", "shed", settings=settings)
        home = self.directory / "home"
        return open_backend(home, store_id=store_id, notify=notify, account=lambda: account)

    async def lose(self, ref: RunRef) -> None:
        """Removes the sandbox and all its processes at once, as a machine that dies does."""
        box = self.directory / "shed" / "boxes" / ref.handle.partition("/")[0]
        (box / "box.json").unlink(missing_ok=True)
        while pids := processes_of(box):
            for pid in pids:
                kill_process(pid)


class TestShed(ProviderContract):
    def world(self, tmp_path: Path) -> ProviderWorld:
        return ShedWorld(tmp_path)

    def refused(self) -> Template:
        return command_task("true", resources={"gpu": "A100:1"})
