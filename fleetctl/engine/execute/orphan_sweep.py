"""The sweep: sandboxes that carry our store's tag and have no record are stopped after a grace time
(T7, P3).

A sandbox without a record is rare: a create that landed after we gave up, or a store restored from
a backup.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.engine.shared.boundary import guard_call
from fleetctl.providers.contract.base import Owned, RunRef

if TYPE_CHECKING:
    from fleetctl.engine.execute.rate_limit import RateLimiter
    from fleetctl.engine.shared.engine_state import EngineState

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
            known = not track.dormant and _in_rows(state, track.resource.uid, box.sandbox)
        if known:
            return True
    return False


def _in_rows(
    state: EngineState,
    uid: str,
    sandbox: str,
) -> bool:
    return any(
        run.sandbox == sandbox and (run.state in LIVE_STATES or run.sandbox_open)
        for run, _ in state.store.runs.of(uid)
    )
