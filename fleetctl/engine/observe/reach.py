"""Whether a provider's service answers at all while something of ours is there. What goes well says
nothing on its streams for long; a person who asks is to be told within ten seconds.

One watch for each provider that can be asked cheaply; made by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.engine.observe.troubles import Troubles, uses
from fleetctl.engine.shared.boundary import NoAnswer, guarded
from fleetctl.providers.contract.base import Backend, Reachable

if TYPE_CHECKING:
    from fleetctl.tracking.track import Track

log = logging.getLogger("fleetctl.engine")

ASKED_EVERY_S = 4.0
ANSWER_S = 4.0
AGAIN_S = 0.5  # one odd answer says nothing; a second one is said


async def watch_reach(
    name: str,
    backend: Callable[[], Backend],
    *,
    tracks: Callable[[], list[Track]],
    troubles: Troubles,
    changed: Callable[[], None],
) -> None:
    """For ever. Nothing is asked while nothing of ours is there, nor while all is told already."""
    while True:
        await asyncio.sleep(ASKED_EVERY_S)
        service = backend()
        if not isinstance(service, Reachable):
            return
        if not any(uses(track, name) for track in tracks()):
            troubles.answered(name)
            continue
        error = await _asked(name, service)
        if error is not None and troubles.of(name) is None:
            await asyncio.sleep(AGAIN_S)
            error = await _asked(name, service)
        if error is None:
            troubles.answered(name)
        else:
            troubles.silent(name, error)
        changed()


async def _asked(name: str, service: Reachable) -> FleetctlError | None:
    """Why the service cannot be worked with; None when it can."""
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await guarded(service.reach(), what="reach", key=name)
    except (Refused, Unavailable) as error:
        # It answers, and asks for patience: nothing is wrong.
        return None if isinstance(error, Unavailable) and error.reason == "RateLimited" else error
    except TimeoutError:
        answer = NoAnswer(f"provider `{name}` does not answer")
    if isinstance(answer, NoAnswer):
        return Unavailable(f"provider `{name}`: {answer.why}", reason="Unreachable")
    return None
