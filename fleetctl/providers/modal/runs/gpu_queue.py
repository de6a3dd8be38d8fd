"""Limits creates that block at Modal until a GPU is free; further ones queue here.

Used by modal_creator.py. Knows which runs wait for a GPU. Not every pending create does: one that
the rate limit holds back, or that is queued behind creates that proceed, may get its GPU at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PATIENCE_S = 3.0  # a GPU that is free is there by then


class GpuQueue:
    """A queue of creates that may block. places: how many creates may block at once. patience_s:
    seconds; None is PATIENCE_S.
    """

    def __init__(self, places: int, *, patience_s: float | None = None) -> None:
        self._count = max(1, places)
        self._places = asyncio.Semaphore(self._count)
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._blocked: set[str] = set()  # at Modal for longer than a free GPU takes
        self._in_line: set[str] = set()
        self._more_wait = asyncio.Event()

    @asynccontextmanager
    async def place(self, run: str) -> AsyncIterator[None]:
        """Holds a slot in which a create may block at Modal. First come, first served."""
        self._in_line.add(run)
        self._wake_waiters()
        try:
            await self._places.acquire()
        finally:
            self._in_line.discard(run)
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._block, run)
        try:
            yield
        finally:
            timer.cancel()
            self._blocked.discard(run)
            self._places.release()

    async def wait_told(self, run: str) -> None:
        """Returns once it is known that the run's create waits for a GPU; it may never return."""
        while not self._waits(run):
            await self._more_wait.wait()

    def _waits(self, run: str) -> bool:
        return run in self._blocked or (run in self._in_line and len(self._blocked) >= self._count)

    def _block(self, run: str) -> None:
        self._blocked.add(run)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        changed, self._more_wait = self._more_wait, asyncio.Event()
        changed.set()
