"""A token bucket: a number of calls a second, and a burst after a pause. One per sort of call."""

from __future__ import annotations

import asyncio


class TokenBucket:
    """rate_per_s and burst as the provider grants them; a burst below one call would never pass."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate = rate_per_s
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._filled_at_s: float | None = None
        self._held_until_s = 0.0

    async def take(self) -> None:
        """Waits for a token. First come, first served: each caller takes its turn at once."""
        now_s = asyncio.get_running_loop().time()
        passed_s = 0.0 if self._filled_at_s is None else now_s - self._filled_at_s
        self._tokens = min(self._burst, self._tokens + passed_s * self._rate)
        self._filled_at_s = now_s
        self._tokens -= 1.0  # below zero: a position in the line
        delay_s = max(-self._tokens / self._rate, self._held_until_s - now_s)
        if delay_s <= 0:
            return
        try:
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            self._tokens += 1.0
            raise

    def hold(self, delay_s: float) -> None:
        """Lets no call pass for delay_s seconds, as the provider asked."""
        until_s = asyncio.get_running_loop().time() + delay_s
        self._held_until_s = max(self._held_until_s, until_s)
