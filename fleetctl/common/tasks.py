"""Ending asyncio tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

AGAIN_S = 0.5


async def cancel_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels tasks until all have ended, with any result.

    Once is not enough: an SDK may take a cancellation for a failure of its own call, and its caller
    then goes on, such as a loop that looks again and again.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not report it


async def wait_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits until the event is set, for `seconds` at most. Returns true if it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def wait_or_wake(event: asyncio.Event, within_s: float) -> None:
    """Waits until the event is set, and sets it after within_s. No error, and no task of its
    own.
    """
    alarm = asyncio.get_running_loop().call_later(within_s, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
