"""Ending asyncio tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

AGAIN_S = 0.5


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them until all are over, whatever they end with.

    Once is not enough: an SDK may take a cancellation for a failure of its own call, and who made
    that call then goes on, such as a loop that looks again and again.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # heard, so that nobody is told of it


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, for so long at most. Whether it is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def woken(event: asyncio.Event, within_s: float) -> None:
    """Wait until the event is set, and set it after within_s. No error, and no task of its own."""
    alarm = asyncio.get_running_loop().call_later(within_s, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
