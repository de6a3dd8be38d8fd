"""Builds of images that several starts wait for, each for so long.

Called by the images of each provider with remote sandboxes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from fleetctl.common.errors import Unavailable

PATIENCE_S = 20.0  # a start waits this long for a build, then makes room for other starts
RETRY_AFTER_S = 2.0

T = TypeVar("T")


def start_build(make: Coroutine[None, None, T]) -> asyncio.Task[T]:
    """An error belongs to who asks for the image next; asyncio would call it forgotten."""
    task = asyncio.ensure_future(make)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def has_failed(task: asyncio.Task[T]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def await_build(task: asyncio.Task[T]) -> T:
    """Returns the result of a build's task, which goes on when this gives up, or when its caller
    does.
    """
    if not task.done():  # as it is for all runs of a resource but its first
        await asyncio.wait({task}, timeout=PATIENCE_S)
    if not task.done():
        raise Unavailable(
            "the image is being built",
            reason="Building",
            retry_after_s=RETRY_AFTER_S,
            hint="fleetctl logs --build KIND/NAME -f",
        )
    if task.cancelled():
        raise Unavailable("the provider is being closed")
    return task.result()
