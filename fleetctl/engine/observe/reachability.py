"""Probes the service of a provider every few seconds while there are runs of ours.

Streams of runs may be silent for long while all is well, and a user must see an outage within ten
seconds. The engine's loop starts one probing task for each provider that has a cheap check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.engine.observe.provider_health import ProviderHealth, uses_provider
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.providers.contract.base import Backend, Reachable

if TYPE_CHECKING:
    from fleetctl.tracking.track import Track

log = logging.getLogger("fleetctl.engine")

# Together at most 8.5 s, so an outage shows within ten seconds.
PROBE_EVERY_S = 4.0
PROBE_TIMEOUT_S = 4.0
PROBE_AGAIN_S = 0.5  # a single failure proves little; the second one is reported


async def watch_reachability(
    name: str,
    backend: Callable[[], Backend],
    *,
    tracks: Callable[[], list[Track]],
    health: ProviderHealth,
    changed: Callable[[], None],
) -> None:
    """Probes until cancelled, or until the provider no longer has a check. Sends no request while
    the provider has no work of ours.

    backend, tracks: return the current provider and the current objects. health: gets each outcome.
    changed: called after a probe, to wake the loop.
    """
    while True:
        await asyncio.sleep(PROBE_EVERY_S)
        service = backend()
        if not isinstance(service, Reachable):
            return
        if not any(uses_provider(track, name) for track in tracks()):
            health.record_reply(name)
            continue
        error = await _probe_service(name, service)
        if error is not None and health.of(name) is None:
            await asyncio.sleep(PROBE_AGAIN_S)
            error = await _probe_service(name, service)
        if error is None:
            health.record_reply(name)
        else:
            health.record_silence(name, error)
        changed()


async def _probe_service(name: str, service: Reachable) -> FleetctlError | None:
    """Returns the error that keeps the service from being used; None without one."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reply = await guard_call(service.reach(), what="reach", key=name)
    except (Refused, Unavailable) as error:
        # A service that asks for patience replies, so it is reachable.
        return None if isinstance(error, Unavailable) and error.reason == "RateLimited" else error
    except TimeoutError:
        reply = NoAnswer(f"provider `{name}` does not answer")
    if isinstance(reply, NoAnswer):
        return Unavailable(f"provider `{name}`: {reply.why}", reason="Unreachable")
    return None
