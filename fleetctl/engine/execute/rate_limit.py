"""The rate limiter before a provider: token bucket and calls at once, from its contract (I16), and
creates a minute, from its Provider object.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fleetctl.common.clock import Clock
from fleetctl.common.errors import Unavailable
from fleetctl.common.token_level import TokenLevel
from fleetctl.engine.shared.engine_state import CallCounts
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.stores.base import Store

T = TypeVar("T")

MINUTE_S = 60.0


class RateLimiter:
    """The rate limiter of a provider. After `hold_until` no call passes earlier, from any caller
    (Retry-After).
    """

    def __init__(self, contract: Contract, clock: Clock) -> None:
        self._contract = contract
        self._clock = clock
        self._slots = asyncio.Semaphore(contract.calls_at_once)
        self._starts = asyncio.Semaphore(max(1, contract.calls_at_once * 3 // 4))
        self._level = TokenLevel(contract.calls_per_s, contract.calls_per_s)
        self._held_until_s = 0.0
        self.creates_per_minute: int | None = None
        self._created: deque[float] = deque()  # when, within the last minute
        self._note: Callable[[float], None] | None = None
        self.counts = CallCounts()

    def remember(self, known: Sequence[float], note: Callable[[float], None]) -> None:
        """Makes creates outlive the controller: known is when an earlier one created, ascending;
        note makes such a time durable, before the call.
        """
        now_s = self._clock.now_s()
        # After the clock was set back, a time in the future must not hold up for longer.
        self._created = deque(min(at_s, now_s) for at_s in known)
        self._note = note

    def created(self) -> deque[float]:
        """Returns when calls that may have made a sandbox were let through; while that is
        limited.
        """
        return self._created.copy()

    def hold_until(self, at_s: float) -> None:
        self._held_until_s = max(self._held_until_s, at_s)

    async def start(self, call: Callable[[], Awaitable[T]], *, creates: bool = False) -> T:
        """Makes a call as `ask` does, for starts: building an environment may take minutes, and one
        slot in four stays free, so that looks and stops go on meanwhile.

        creates: the call may make a sandbox.
        """
        async with self._starts:
            return await self.ask(call, creates=creates)

    async def ask(self, call: Callable[[], Awaitable[T]], *, creates: bool = False) -> T:
        """Waits for a slot and a token, then makes the call under the contract's deadline.

        Raises TimeoutError when the call takes longer than call_deadline_s; the wait does not
        count.
        """
        async with self._slots:
            while (delay_s := self._delay_s(creates=creates)) > 0:
                await asyncio.sleep(delay_s)
            self.counts.calls += 1
            begun_at_s = self._clock.now_s()
            try:
                async with asyncio.timeout(self._contract.call_deadline_s):
                    return await call()
            except Unavailable as error:
                self.counts.failed += 1
                self.counts.limited += error.reason == "RateLimited"
                # The account behind the provider is the same for every verb, so all verbs wait.
                if error.reason == "RateLimited":
                    self.hold_until(self._clock.now_s() + error.retry_after_s)
                raise
            finally:
                self.counts.seconds += max(0.0, self._clock.now_s() - begun_at_s)

    def _delay_s(self, *, creates: bool) -> float:
        """Returns 0.0 and takes a token, or returns how long to wait before the next try."""
        now_s = self._clock.now_s()
        held_until_s = max(self._held_until_s, self._create_at_s(now_s) if creates else 0.0)
        if now_s < held_until_s:
            return held_until_s - now_s
        delay_s = self._level.take(now_s)
        if delay_s == 0.0 and creates and self.creates_per_minute is not None:
            self._created.append(now_s)
            if self._note is not None:
                self._note(now_s)
        return delay_s

    def _create_at_s(self, now_s: float) -> float:
        """Returns when the next create is due: never more than creates_per_minute in any minute."""
        while self._created and self._created[0] <= now_s - MINUTE_S:
            self._created.popleft()
        most = self.creates_per_minute
        if most is None or len(self._created) < most:
            return now_s
        return self._created[len(self._created) - most] + MINUTE_S


class RateLimiters(dict[str, RateLimiter]):
    """One limiter a provider, by name. Creates are remembered in the store, so that a restart does
    not exceed the creates allowed in a minute.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        counts: dict[str, CallCounts],
    ) -> None:
        """counts: gets the calls of each provider."""
        super().__init__()
        self._store = store
        self._clock = clock
        self._counts = counts

    def add(self, provider: str, contract: Contract) -> None:
        """Adds a limiter, also for an account that is declared after the start."""
        rate_limiter = self[provider] = RateLimiter(contract, self._clock)
        rate_limiter.counts = self._counts.setdefault(provider, rate_limiter.counts)
        rate_limiter.remember(
            self._store.creates.times(provider), partial(self._note_create, provider)
        )

    def limit_creates(self, provider_specs: Mapping[str, ProviderSpec]) -> None:
        """Sets createsPerMinute of each provider, by its Provider object."""
        for name, rate_limiter in self.items():
            rate_limiter.creates_per_minute = (
                provider_specs[name].limits.creates_per_minute if name in provider_specs else None
            )

    def _note_create(self, provider: str, at_s: float) -> None:
        with self._store.transaction():
            self._store.creates.add(provider, at_s, forget_until_s=at_s - MINUTE_S)
