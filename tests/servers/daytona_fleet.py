"""A store whose runs are on an emulated Daytona, for the tests of its failure modes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.base import Backend
from fleetctl.providers.daytona.daytona_provider import DaytonaProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.emulators.daytona.running import DaytonaEmulator
from tests.servers import fleets
from tests.servers.fleets import Play, telling

DURATIONS_S = {"creating": 0.0, "starting": 0.0, "destroying": 0.0, "volume.creating": 0.05}
USUAL = {"list_lag_s": 0.0, "gpus_per_type": 10**6, "quota": {"cpu": 250}, "latency_s": 0.0}


class Fleet(fleets.Fleet):
    name = "daytona"

    def __init__(self, home: Path, emulator: DaytonaEmulator, **options: Any) -> None:
        self.home, self.emulator = home, emulator
        super().__init__(home, **options)

    def build(self, home: Path, pace: FollowPace) -> Backend:
        return DaytonaProvider(home, store_id=self.store.store_id, notify=self.told, pace=pace)

    def made(self) -> list[dict[str, Any]]:
        fleet = self.store.store_id
        boxes = self.emulator.state()["sandboxes"]
        return [one for one in boxes if one["labels"].get("fleet") == fleet]

    def live(self) -> list[dict[str, Any]]:
        """Held at Daytona, whether anything runs in it or not."""
        return [one for one in self.made() if one["state"] != "destroyed"]


Tale = Callable[[Fleet], Awaitable[None]]


@contextmanager
def played(home: Path, emulator: DaytonaEmulator) -> Iterator[Play]:
    """Tells a tale of one store; afterwards the service is as it was."""
    try:
        yield telling(partial(Fleet, home, emulator))
    finally:
        emulator.remove_faults()
        emulator.set(durations_s=DURATIONS_S, **USUAL)
        emulator.scale(1.0)
