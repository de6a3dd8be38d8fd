"""Watches if a provider's service is reachable while runs of ours are there. While all goes well
its streams are silent for long; a user must see an outage within ten seconds.

One watch for each provider with a cheap check; made by the loop.
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

ASKED_EVERY_S = 4.0
ANSWER_S = 4.0
AGAIN_S = 0.5  # a single failure proves little; the second one is reported


async def watch_reach(
    name: str,
    backend: Callable[[], Backend],
    *,
    tracks: Callable[[], list[Track]],
    troubles: ProviderHealth,
    changed: Callable[[], None],
) -> None:
    """Runs for ever. Sends no request while the provider has no work of ours."""
    while True:
        await asyncio.sleep(ASKED_EVERY_S)
        service = backend()
        if not isinstance(service, Reachable):
            return
        if not any(uses_provider(track, name) for track in tracks()):
            troubles.record_reply(name)
            continue
        error = await _probe_service(name, service)
        if error is not None and troubles.of(name) is None:
            await asyncio.sleep(AGAIN_S)
            error = await _probe_service(name, service)
        if error is None:
            troubles.record_reply(name)
        else:
            troubles.record_silence(name, error)
        changed()


async def _probe_service(name: str, service: Reachable) -> FleetctlError | None:
    """Returns why the service is not usable; None when it is."""
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await guard_call(service.reach(), what="reach", key=name)
    except (Refused, Unavailable) as error:
        # It replies, and only asks for patience: that is no trouble.
        return None if isinstance(error, Unavailable) and error.reason == "RateLimited" else error
    except TimeoutError:
        answer = NoAnswer(f"provider `{name}` does not answer")
    if isinstance(answer, NoAnswer):
        return Unavailable(f"provider `{name}`: {answer.why}", reason="Unreachable")
    return None
