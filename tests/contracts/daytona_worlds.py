"""Worlds of provider `daytona`: the real SDK against the emulator of tests/emulators/daytona, in a
process of its own for all worlds of a module. Each world is a store of its own in it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.daytona.daytona_provider import DaytonaProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.contracts.provider_answers import WORDS, SpoiltWorld
from tests.emulators.daytona.running import DaytonaEmulator

QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)
SETTINGS = {
    "FLEETCTL_DAYTONA_QUICK_S": "0.3",
    "FLEETCTL_DAYTONA_CREATES_PER_S": "100",
}
SNAPSHOTS = 1_000  # many worlds share one organization, and each test has images of its own


@contextmanager
def emulated() -> Iterator[DaytonaEmulator]:
    """An emulator that the SDK in this process finds; the environment is put back after."""
    with DaytonaEmulator() as emulator:
        before = dict(os.environ)
        for name in [name for name in os.environ if name.startswith("DAYTONA_")]:
            del os.environ[name]
        os.environ.update(emulator.env | SETTINGS)
        emulator.set(quota={"snapshots": SNAPSHOTS})
        try:
            yield emulator
        finally:
            os.environ.clear()
            os.environ.update(before)


Tale = Callable[["DaytonaWorld"], Awaitable[None]]
Play = Callable[[Tale], None]


@contextmanager
def played(directory: Path, emulator: DaytonaEmulator) -> Iterator[Play]:
    """Tells tales, each in a world of its own; afterwards the service is as it was."""

    def told(tale: Tale) -> None:
        async def scene() -> None:
            world = DaytonaWorld(directory, emulator)
            try:
                await tale(world)
            finally:
                await world.close()

        asyncio.run(scene())

    try:
        yield told
    finally:
        emulator.remove_faults()
        emulator.set(quota={"snapshots": SNAPSHOTS})


QUESTIONS = {
    "create": {"method": "POST", "path": "/api/sandbox"},
    "look": {"method": "GET", "path": "/api/sandbox/*"},
    "end": {"method": "DELETE", "path": "/api/sandbox/*"},
    "any": {"path": "/api/*"},
}
PAGE = "<!DOCTYPE html><html><head><title>not found</title></head><body>nginx</body></html>"


def _body(status: int, message: str) -> dict[str, Any]:
    """As the platform's own errors are."""
    return {"statusCode": status, "message": message, "error": "Error", "source": "DAYTONA_API"}


ANSWERS: dict[str, dict[str, Any]] = {
    "key": {"status": 401, "body": _body(401, "Unauthorized")},
    "page": {"status": 404, "body": PAGE},
    "unknown": {"status": 400, "body": _body(400, WORDS)},
    "broken": {"status": 500, "body": _body(500, "Internal server error")},
    "gone": {"status": 404, "body": _body(404, "Sandbox with ID or name x not found")},
}


class DaytonaWorld(SpoiltWorld):
    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        size = self._box(ref)["resources"]
        return {"cpu": size["cpu"], "memory": size["memory"] * 1024**3}

    async def allowed_hosts(self, ref: RunRef) -> list[str]:
        return str(self._box(ref)["network"]["allow_list"]).split(",")

    def _box(self, ref: RunRef) -> dict[str, Any]:
        return next(it for it in self.made() if it["id"] == ref.handle)

    def __init__(self, directory: Path, emulator: DaytonaEmulator) -> None:
        self.emulator = emulator
        self.salt = token_hex(4)
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return DaytonaProvider(
            self.directory / "home",
            store_id=f"{store_id}-{self.salt}",
            notify=notify,
            pace=QUICK,
        )

    async def lose(self, ref: RunRef) -> None:
        """Its machine goes away: Daytona says `error`, if it is there at all."""
        if self.emulator.sandbox(ref.handle)["state"] != "destroyed":
            self.emulator.lose(ref.handle)

    def spoil(self, question: str, answer: str) -> None:
        self.emulator.fault(**QUESTIONS[question], **ANSWERS[answer])

    def mend(self) -> None:
        self.emulator.remove_faults()

    def asked(self) -> int:
        return sum(int(it["met"]) for it in self.emulator.faults())

    def cut(self, ref: RunRef) -> None:
        self.emulator.cut(ref.handle)

    def living(self) -> int:
        return len(self.present())

    async def close(self) -> None:
        self.mend()
        await super().close()

    def made(self) -> list[dict[str, Any]]:
        """Every sandbox that was ever made for this world's store."""
        fleet = f"{self.store_id}-{self.salt}"
        boxes = self.emulator.state()["sandboxes"]
        return [one for one in boxes if one["labels"].get("fleet") == fleet]

    def present(self) -> list[dict[str, Any]]:
        """Those that are not destroyed."""
        return [one for one in self.made() if one["state"] != "destroyed"]
