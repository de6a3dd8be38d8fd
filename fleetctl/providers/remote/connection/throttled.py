"""Calls that a provider throttles, made again when it says: for who has nobody to ask again later.

Called by the sessions of interpreters. Runs are asked for again by the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleetctl.common.errors import Unavailable

RATE_LIMITED = "RateLimited"  # the reason that every provider has for it
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # at least, where less is told: others wait for the same

log = logging.getLogger("fleetctl.providers")
T = TypeVar("T")


async def unless_throttled(call: Callable[[], Awaitable[T]], *, patience_s: float) -> T:
    """What the call makes. A throttled one has done nothing, and is made again after the time that
    was told. Raises what it raises, also the last throttling that would outlast patience_s.
    """
    loop = asyncio.get_running_loop()
    until_s, least_s = loop.time() + patience_s, AGAIN_S
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
