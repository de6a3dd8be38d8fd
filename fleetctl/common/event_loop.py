"""Chooses the event loop of the controller and the gateway, uvloop's where it is installed, and
ends asyncio tasks.

Other commands have finished before a faster loop could be worth its import. `FLEETCTL_LOOP`
chooses.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from fleetctl.common.errors import Refused

VARIABLE = "FLEETCTL_LOOP"
FASTEST, UVLOOP, ASYNCIO = CHOICES = ("auto", "uvloop", "asyncio")
# Where Python has no policy of event loops any more.
NO_POLICY = (3, 16)

AGAIN_S = 0.5


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns the maker of the loop, for `asyncio.Runner`; None for asyncio's own.

    With uvloop's, loops that others make in threads of this process are of its kind from now on:
    Modal's SDK works in one. Raises Refused for a spec that cannot be met.
    """
    wanted = os.environ.get(VARIABLE) or FASTEST
    if wanted not in CHOICES:
        raise Refused(
            f"{VARIABLE} is `{wanted}`; it must be one of {', '.join(CHOICES)}",
            hint=f"unset {VARIABLE}",
        )
    if wanted == ASYNCIO:
        return None
    try:
        import uvloop
    except ImportError:
        if wanted == FASTEST:
            return None
        raise Refused(
            f"{VARIABLE} is `{UVLOOP}`, and the package `uvloop` is not installed",
            hint=f"pip install uvloop, or unset {VARIABLE}",
        ) from None
    if sys.version_info < NO_POLICY:
        _for_threads_of_others()
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _for_threads_of_others() -> None:
    """Sets the event loop policy, from which `asyncio.run` in other libraries takes its loop.
    Suppresses the deprecation warning of Python 3.14, which a user could not fix.
    """
    import uvloop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


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
