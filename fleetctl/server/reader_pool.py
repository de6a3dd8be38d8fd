"""Runs reads of the store in threads of their own, each with an open store, so that a slow read
holds up no other request. Called by the handlers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fleetctl.common.errors import StoreError
from fleetctl.views.store_reading import StoreReading, open_reading

T = TypeVar("T")

READERS = 4  # more would wait for each other: Python runs one at a time


class ReaderPool:
    """The threads of a server that read."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._queries = ThreadPoolExecutor(1, thread_name_prefix="query")
        self._own = threading.local()

    async def read(self, work: Callable[[StoreReading], T]) -> T:
        """Returns the result of the work. The open store is of its thread: the work must be over
        with it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, work)

    async def query(self, work: Callable[[], T]) -> T:
        """Returns the result of a user's SQL: one at a time, and never in the way of a list."""
        return await asyncio.get_running_loop().run_in_executor(self._queries, work)

    def _run(self, work: Callable[[StoreReading], T]) -> T:
        reading: StoreReading | None = getattr(self._own, "reading", None)
        if reading is None:
            reading = self._own.reading = open_reading(self._home)
        try:
            return work(reading)
        except StoreError:
            # The file may be another one by now (a restored store): the next read opens it again.
            self._own.reading = None
            reading.__exit__()
            raise

    def close(self) -> None:
        for pool in (self._threads, self._queries):
            pool.shutdown(wait=False, cancel_futures=True)
