"""The gate before a provider: token bucket and calls at once, from its contract (I16)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleetctl.clock import Clock
from fleetctl.errors import Unavailable
from fleetctl.providers.base import Contract

T = TypeVar("T")


class Gate:
    """One per provider. After `hold_until` no call passes earlier, whoever asks (Retry-After)."""

    def __init__(self, contract: Contract, clock: Clock) -> None:
        self._contract = contract
        self._clock = clock
        self._slots = asyncio.Semaphore(contract.calls_at_once)
        self._starts = asyncio.Semaphore(max(1, contract.calls_at_once * 3 // 4))
        self._burst = max(1.0, contract.calls_per_s)
        self._tokens = self._burst
        self._filled_at_s = clock.now_s()
        self._held_until_s = 0.0

    def hold_until(self, at_s: float) -> None:
        self._held_until_s = max(self._held_until_s, at_s)

    async def start(self, call: Callable[[], Awaitable[T]]) -> T:
        """As `ask`, for starts: building an environment may take minutes, and a place in four
        stays free of them, so that looks and stops go on meanwhile.
        """
        async with self._starts:
            return await self.ask(call)

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for a place and a token, then make the call under the contract's deadline.

        Raises TimeoutError when the call takes longer than call_deadline_s; the wait does not
        count.
        """
        async with self._slots:
            while (delay_s := self._delay_s()) > 0:
                await asyncio.sleep(delay_s)
            try:
                async with asyncio.timeout(self._contract.call_deadline_s):
                    return await call()
            except Unavailable as error:
                # Whichever verb was told to wait, the account behind it is the same.
                if error.reason == "RateLimited":
                    self.hold_until(self._clock.now_s() + error.retry_after_s)
                raise

    def _delay_s(self) -> float:
        """0.0 and a token taken, or how long to wait before asking again."""
        now_s = self._clock.now_s()
        if now_s < self._held_until_s:
            return self._held_until_s - now_s
        rate = self._contract.calls_per_s
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_at_s) * rate)
        self._filled_at_s = now_s
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / rate
