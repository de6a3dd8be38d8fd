"""Ends sandboxes without a record by their id: those believed gone, and those that a user
abandoned. The controller stays until each is confirmed, and the sweep is the net.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.controllers.model import Run
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.providers.contract.base import RunRef, ref_of

if TYPE_CHECKING:
    from fleetctl.engine.execute.rate_limit import RateLimiter
    from fleetctl.providers.contract.base import Backend

log = logging.getLogger("fleetctl.engine")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A sandbox to end, of a run whose record is closed."""

    provider: str
    ref: RunRef


def make_leftover(run: Run) -> Leftover:
    """Returns the leftover that a run may have at its provider."""
    ref = ref_of(run)
    return Leftover(run.provider, ref)


class Leftovers:
    """backoff_s: of the n-th try."""

    def __init__(
        self,
        *,
        backend: Callable[[str], Backend | None],
        rate_limiter: Callable[[str], RateLimiter],
        backoff_s: Callable[[int], float],
    ) -> None:
        self._backend = backend
        self._rate_limiter = rate_limiter
        self._backoff_s = backoff_s
        self._ending: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._ending)

    def end(self, left: Leftover) -> None:
        """Ends the leftover in the background. Idempotent by sandbox."""
        key = left.ref.sandbox
        if key in self._ending or self._backend(left.provider) is None:
            return
        task = self._ending[key] = asyncio.ensure_future(self._end(left))
        task.add_done_callback(lambda _: self._ending.pop(key, None))

    async def close(self) -> None:
        """Cancels every call; the sweep of the next controller finds the remaining sandboxes."""
        await cancel_tasks(self._ending.values())

    async def _end(self, left: Leftover) -> None:
        tries = 0
        while not await self._ask_stop(left):
            tries += 1
            await asyncio.sleep(self._backoff_s(tries))

    async def _ask_stop(self, left: Leftover) -> bool:
        backend = self._backend(left.provider)
        if backend is None:
            return True
        stop: Callable[[], Awaitable[None]] = partial(backend.stop, left.ref, grace_s=0.0)
        try:
            call = self._rate_limiter(left.provider).ask(stop)
            reply = await guard_call(call, what="stop", key=left.ref.sandbox)
        except (Refused, Unavailable) as error:
            log.info("stop refused", extra={"sandbox": left.ref.sandbox, "error": str(error)})
            return False
        return not isinstance(reply, NoAnswer)
