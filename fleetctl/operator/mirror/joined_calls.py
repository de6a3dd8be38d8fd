"""Joins the calls that wait at the same time into one, so that many objects share a commit of the
store: five hundred custom resources that are there at a start wait for dozens of syncs of the disk,
not for five hundred. Called by applier.py and resource_mirror.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class JoinedCalls(Generic[T]):
    """Calls of a function that handles several items at once, all or none. An item whose batch is
    refused is handled by itself, so that it learns its own error and stops no other.
    """

    def __init__(self, call: Callable[[Sequence[T]], Awaitable[object]], *, items_max: int) -> None:
        self._call = call
        self._items_max = items_max
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._working: asyncio.Task[None] | None = None

    async def handle(self, item: T) -> None:
        """Returns once the item is handled. Raises the errors of the function for this item."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._working is None:
            self._working = asyncio.ensure_future(self._work())
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever is ready in this turn of the loop joins
                batch = self._waiting[: self._items_max]
                del self._waiting[: self._items_max]
                if wanted := [it for it in batch if not it[1].done()]:  # not cancelled
                    await self._carry_out(wanted)
        finally:
            self._working = None

    async def _carry_out(self, batch: Sequence[tuple[T, asyncio.Future[None]]]) -> None:
        try:
            await self._call([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - carried over to whoever waits
            # One bad object never stops the others (P7).
            if len(batch) > 1:
                for one in batch:
                    await self._carry_out([one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for _, done in batch:
            if not done.done():  # its caller was cancelled
                done.set_result(None)
