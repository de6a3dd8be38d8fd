"""A store whose runs are on an emulated Modal, for the tests of its failure modes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.base import Backend
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.emulators.modal.running import ModalEmulator
from tests.servers import fleets
from tests.servers.fleets import Play, Tally, begins, telling

__all__ = ["Fleet", "Play", "Tale", "Tally", "begins", "played"]


class Fleet(fleets.Fleet):
    name = "modal"

    def __init__(self, home: Path, emulator: ModalEmulator, **options: Any) -> None:
        self.emulator = emulator
        super().__init__(home, **options)

    def build(self, home: Path, pace: FollowPace) -> Backend:
        return ModalProvider(home, store_id=self.store.store_id, notify=self.told, pace=pace)

    def made(self) -> list[dict[str, Any]]:
        """Every sandbox that was ever made for this store."""
        fleet = self.store.store_id
        boxes = self.emulator.state()["sandboxes"]
        return [one for one in boxes if one["tags"].get("fleet") == fleet]

    def live(self) -> list[dict[str, Any]]:
        return [one for one in self.made() if one["live"]]


Tale = Callable[[Fleet], Awaitable[None]]


@contextmanager
def played(home: Path, emulator: ModalEmulator) -> Iterator[Play]:
    """Tells a tale of one store; afterwards the service is as it was, and empty."""
    try:
        yield telling(partial(Fleet, home, emulator))
    finally:
        emulator.do("clear_faults")
        emulator.do("settings", gpu_capacity={})
        for left in emulator.live():
            emulator.do("end_sandbox", sandbox_id=left["sandbox_id"])
