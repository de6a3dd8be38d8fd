"""Repeats calls that a provider throttles, at the time that it names: for callers without an engine
that asks again later.

Called by the sessions of interpreters. Runs are asked for again by the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleetctl.common.errors import Unavailable

RATE_LIMITED = "RateLimited"  # the reason that every provider has for it
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # the least, also for shorter waits: others wait for the same

log = logging.getLogger("fleetctl.providers")
T = TypeVar("T")


async def unless_throttled(call: Callable[[], Awaitable[T]], *, patience_s: float) -> T:
    """Returns the call's result. A throttled call was not carried out, and is repeated after the
    wait that the provider named. Raises the call's errors, also the last throttling that would
    outlast patience_s.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + patience_s
    least_s = AGAIN_S
    while True:
        try:
            return await call()
        except Unavailable as error:
            delay_s = max(error.retry_after_s, least_s)
            if error.reason != RATE_LIMITED or loop.time() + delay_s > until_s:
                raise
            log.info("throttled", extra={"error": str(error), "again_after_s": delay_s})
        least_s = min(2 * least_s, AGAIN_MAX_S)
        await asyncio.sleep(delay_s)
