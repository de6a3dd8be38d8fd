"""Provider `modal` against the suite of all providers, at whatever server the environment names.

Collected only when it is named: it costs money at the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.modal.modal_provider import ModalProvider
from tests.contracts.provider_worlds import World
from tests.live.live_world import LiveSuite, LiveWorld


class ModalWorld(LiveWorld):
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


class TestLive(LiveSuite):
    sort = "modal"

    # No client of Modal shows them; a GPU would cost more than the rest.
    test_a_machine_has_the_resources_of_its_template = None
    test_a_machine_has_room_for_its_services = None
    test_a_task_reaches_the_hosts_of_its_network_alone = None

    def world(self, tmp_path: Path) -> World:
        return ModalWorld(tmp_path)
