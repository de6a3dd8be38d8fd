"""A token bucket whose callers wait: a number of calls a second, and a burst after a pause. One per
sort of call."""

from __future__ import annotations

import asyncio

from fleetctl.common.token_level import TokenLevel


class TokenBucket:
    """rate_per_s and burst as the provider grants them."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._level = TokenLevel(rate_per_s, burst)
        self._held_until_s = 0.0

    async def take(self) -> None:
        """Waits for a token. First come, first served: each caller takes its turn at once."""
        now_s = asyncio.get_running_loop().time()
        delay_s = max(self._level.line_up(now_s), self._held_until_s - now_s)
        if delay_s <= 0:
            return
        try:
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            self._level.give_back()
            raise

    def hold(self, delay_s: float) -> None:
        """Lets no call pass for delay_s seconds, as the provider asked."""
        until_s = asyncio.get_running_loop().time() + delay_s
        self._held_until_s = max(self._held_until_s, until_s)
