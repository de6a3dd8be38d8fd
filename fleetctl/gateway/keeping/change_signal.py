"""A signal that fires repeatedly, and its waiters for the next time."""

import asyncio
from contextlib import suppress


class ChangeSignal:
    def __init__(self) -> None:
        self._next: asyncio.Event | None = None  # made by the first waiter

    def fire(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None

    async def wait(self, within_s: float) -> None:
        """Waits until the signal fires, at most `within_s` seconds."""
        if self._next is None:
            self._next = asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._next.wait(), within_s)
