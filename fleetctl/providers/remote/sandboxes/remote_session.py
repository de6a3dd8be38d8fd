"""The shared base of all interpreters' sessions in a sandbox elsewhere: when and how often it is
ended, and why it ended.

Each such provider's session is built on this; it defines how its sandbox is ended and read.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod

from fleetctl.common.errors import FleetctlError

LAST_WORDS_CHARACTERS = 2000  # of what the driver wrote on its standard error


class RemoteSession(ABC):
    place_root = ""
    workspace = ""
    committed_late = ""

    def __init__(self, *, lifetime_s: float) -> None:
        """lifetime_s: how long the driver may live. The provider's own limit counts from the first
        moment of the sandbox and leaves room for that; this one counts from the driver's.
        """
        self._why = ""
        self._last_words = ""
        self._age = asyncio.create_task(self._end_after(lifetime_s))
        self._stopping: asyncio.Task[None] | None = None

    def ending(self) -> str:
        why = self._why or "its sandbox ended"
        if self._last_words:
            return f"{why}; its last words: {self._last_words}"
        return why

    async def stop(self) -> None:
        if self._stopping is None or (self._stopping.done() and self._stopping.exception()):
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        await self._end_sandbox()
        self._age.cancel()

    @abstractmethod
    async def _end_sandbox(self) -> None:
        """Raises Unavailable when it cannot be ended now; it is asked again then."""

    async def _end_after(self, lifetime_s: float) -> None:
        await asyncio.sleep(lifetime_s)
        self._why = f"its lifetime of {lifetime_s:g} s has passed"
        with contextlib.suppress(FleetctlError):  # then the provider ends it a little later
            await self.stop()

    def _hear_error(self, piece: str) -> None:
        """Keeps the end of the driver's standard error."""
        words = " ".join((self._last_words + piece).split())
        self._last_words = words[-LAST_WORDS_CHARACTERS:]

    def _process_ended(self, code: int) -> None:
        """Sets the reason, unless a better one is known already. code: as in a shell."""
        how = f"was ended by signal {code - 128}" if code > 128 else f"exited with code {code}"
        self._why = self._why or f"its process {how}"
