"""The machinery of the async client: each call runs its synchronous twin in a thread of a pool.

A Fleet reads files of this machine and speaks to a program on it through a socket, both for
milliseconds; only waits are long. A cancelled call ends at its next look, within a second; a change
that was sent to the controller may be stored all the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar

from fleetctl.client.fleet import Fleet
from fleetctl.client.fleet_base import STOP_REQUEST
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

CALLS_AT_ONCE_MAX = 256  # a guess: a thread each while they wait; more calls wait for their turn
BATCH_ROWS = 256  # of a stream, between two switches of threads
BATCHES_AHEAD_MAX = 4
Result = TypeVar("Result")
Row = TypeVar("Row")


class AsyncFleetBase:
    """A Fleet whose methods are awaited. home, namespace: as of Fleet. Use it as `async with`, or
    call `close`.
    """

    def __init__(
        self, home: str | Path | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        self._fleet = Fleet(home, namespace=namespace)
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE_MAX, "fleetctl-async")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Async{self._fleet!r}"

    @property
    def home(self) -> Path:
        return self._fleet.home

    @property
    def namespace(self) -> str:
        return self._fleet.namespace

    def close(self) -> None:
        """Accepts no further calls; those that run go on to their end."""
        self._threads.shutdown(wait=False)

    async def _call(self, function: Callable[[], Result]) -> Result:
        stopped = threading.Event()
        context = copy_context()
        context.run(STOP_REQUEST.set, stopped)
        loop = asyncio.get_running_loop()
        run = partial(context.run, function)
        try:
            return await loop.run_in_executor(self._threads, run)
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def _stream(self, open_rows: Callable[[], Iterator[Row]]) -> AsyncIterator[Row]:
        """Yields the rows, which a thread reads in batches: as fast as they are taken."""
        loop = asyncio.get_running_loop()
        batches: asyncio.Queue[list[Row]] = asyncio.Queue(BATCHES_AHEAD_MAX)
        stopped = threading.Event()

        def put(batch: list[Row]) -> None:
            asyncio.run_coroutine_threadsafe(batches.put(batch), loop).result()

        def read() -> None:
            try:
                rows = open_rows()
                while not stopped.is_set() and (batch := list(islice(rows, BATCH_ROWS))):
                    put(batch)
            finally:
                put([])

        reading = loop.run_in_executor(self._threads, partial(copy_context().run, read))
        try:
            while batch := await batches.get():
                for row in batch:
                    yield row
            await reading  # raises its error
        finally:
            stopped.set()
            while not batches.empty():  # so that the thread, which waits for room, can end
                batches.get_nowait()
