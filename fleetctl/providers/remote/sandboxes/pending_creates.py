"""Sandboxes that are being made: one task for each run, even after repeated requests. It goes on
without a waiting caller.

Called by each provider's creator of sandboxes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.base import Notify


@dataclass(slots=True)
class PendingCreate:
    """since_s: when it began. awaited: by how many."""

    run: str
    task: asyncio.Task[str]
    since_s: float
    awaited: int = 0


class PendingCreates:
    """give_up_s: how long one that is given up may take to end."""

    def __init__(self, notify: Notify, *, give_up_s: float) -> None:
        self._notify = notify
        self._give_up_s = give_up_s
        self._making: dict[str, PendingCreate] = {}

    def __len__(self) -> int:
        return len(self._making)

    def __contains__(self, run: str) -> bool:
        return run in self._making

    def get(self, run: str) -> PendingCreate | None:
        return self._making.get(run)

    def begin(self, run: str, work: Coroutine[None, None, str]) -> PendingCreate:
        """work: returns the sandbox's handle."""
        making = self._making[run] = PendingCreate(run, asyncio.ensure_future(work), time.time())
        making.task.add_done_callback(lambda done: self._ended(making, done))
        return making

    async def handle(
        self, making: PendingCreate, *, patience: Coroutine[None, None, None] | None = None
    ) -> str | None:
        """Returns the handle of the sandbox; None when `patience` ended before: then `notify` is
        called when it is made.
        """
        making.awaited += 1
        patient = asyncio.ensure_future(patience) if patience is not None else None
        either: set[asyncio.Task[Any]] = {making.task} | ({patient} if patient else set())
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            making.awaited -= 1
            if patient is not None:
                patient.cancel()
        if not making.task.done():
            return None
        self._forget(making)
        if making.task.cancelled():
            raise Unavailable(f"the start of `{making.run}` was given up", retry_after_s=1.0)
        return making.task.result()

    async def give_up(self, run: str) -> None:
        """Stops making the sandbox. One that was made already is found by its name."""
        making = self._making.pop(run, None)
        if making is not None:
            making.task.cancel()
            await asyncio.wait({making.task}, timeout=self._give_up_s)

    async def close(self) -> None:
        """Gives up pending creates; the next controller finds it under the same names."""
        await asyncio.gather(*(self.give_up(run) for run in list(self._making)))

    def _ended(self, making: PendingCreate, done: asyncio.Task[str]) -> None:
        if not done.cancelled():
            done.exception()  # the next caller gets it
        if not making.awaited and self._making.get(making.run) is making:
            self._notify(making.run)

    def _forget(self, making: PendingCreate) -> None:
        if self._making.get(making.run) is making:
            del self._making[making.run]
