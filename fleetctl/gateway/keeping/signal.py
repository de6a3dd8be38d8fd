"""Something that happens again and again, and who waits for the next time."""

import asyncio
from contextlib import suppress


class Signal:
    def __init__(self) -> None:
        self._next: asyncio.Event | None = None  # made by the first who waits

    def fire(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None

    async def wait(self, within_s: float) -> None:
        """Until it fires, or for so long."""
        if self._next is None:
            self._next = asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._next.wait(), within_s)
