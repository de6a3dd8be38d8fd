"""Ends sandboxes without a record: those that carry our store's tag, after a grace, and by their id
those believed gone and those that a user names.

A sandbox without a record is rare: a create that landed after we gave up, or a store restored
from a backup. The controller stays until each sandbox that it ends by its id is confirmed gone;
the sweep of the next controller finds those that remain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.model import LIVE_STATES, Run
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.providers.contract.base import Owned, RunRef, ref_of

if TYPE_CHECKING:
    from fleetctl.engine.execute.rate_limit import RateLimiter
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.providers.contract.base import Backend


log = logging.getLogger("fleetctl.engine")


async def sweep_forever(state: EngineState, rate_limiters: Mapping[str, RateLimiter]) -> None:
    """Sweeps every provider in each round; a provider that fails is looked at in the next round."""
    while True:
        await asyncio.sleep(state.settings.sweep_s)
        for name in [one for one in state.providers if not state.holds_starts(one)]:
            try:
                await guard_call(
                    sweep_orphans(state, name, rate_limiters[name]), what="sweep", key=name
                )
            except (Refused, Unavailable) as error:
                log.warning("sweep refused", extra={"provider": name, "error": str(error)})


async def sweep_orphans(
    state: EngineState,
    name: str,
    rate_limiter: RateLimiter,
) -> int:
    """Ends sandboxes without a record; returns how many were asked to stop."""
    provider = state.providers[name]
    contract = provider.contract
    owned = await rate_limiter.ask(provider.owned)
    grace_s = contract.visibility_bound_s + state.settings.sweep_grace_s
    old_at_s = state.clock.now_s() - grace_s
    unknown = [box for box in owned if not _is_known(state, box)]
    state.unrecorded[name] = len(unknown)
    orphans = [box for box in unknown if box.created_at_s < old_at_s]
    for box in orphans[: state.settings.sweep_stops_max]:
        log.warning("sandbox without a record", extra={"sandbox": box.sandbox, "provider": name})
        ref = RunRef(
            box.sandbox,
            box.sandbox,
            box.handle,
            0,
            "",
        )
        stop = rate_limiter.ask(partial(provider.stop, ref, grace_s=0.0))
        try:
            # One that cannot be stopped now is met again; it must not shield those behind it.
            await guard_call(stop, what="sweep", key=box.sandbox)
            state.figures.orphans[name] += 1
        except (Refused, Unavailable) as error:
            log.warning("stop refused", extra={"sandbox": box.sandbox, "error": str(error)})
    return len(orphans)


def _is_known(state: EngineState, box: Owned) -> bool:
    """Returns true if a record of our resources shows that this sandbox lives, or is about to."""
    if box.sandbox in state.adopting:
        return True
    for track in state.tracks.values():
        if track.work is not None:
            known = box.sandbox in track.work.history.sandboxes
        else:
            # A resource whose pass raised is not in memory, but its rows show the sandbox.
            known = not track.dormant and _is_in_rows(state, track.resource.uid, box.sandbox)
        if known:
            return True
    return False


def _is_in_rows(
    state: EngineState,
    uid: str,
    sandbox: str,
) -> bool:
    return any(
        run.sandbox == sandbox and (run.state in LIVE_STATES or run.sandbox_open)
        for run, _ in state.store.runs.of(uid)
    )


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
