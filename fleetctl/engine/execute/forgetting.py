"""Retention: what deleted objects left behind is taken away once it is old, or too much; and copies
of sources that no object names.

Called by the loop as a helper. Each step is small and a transaction of its own, so that ticks go on
between two of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

STEP_PAUSE_S = 0.05


async def forget_forever(state: State) -> None:
    while True:
        while forget_some(state):
            await asyncio.sleep(STEP_PAUSE_S)
        if state.sources is not None:
            # Of all that is stored: what sleeps may be asked to run again, with its copy.
            notes = state.store.resources.annotations()
            await asyncio.to_thread(state.sources.sweep, notes)
        await asyncio.sleep(state.settings.forget_every_s)


def forget_some(state: State) -> bool:
    """Whether there is more to take. A store that refuses is asked again in the next round."""
    settings, store = state.settings, state.store
    until_s = state.clock.now_s() - settings.keep_deleted_s
    try:
        with store.transaction():
            return store.gone.forget(
                until_s=until_s,
                bytes_max=settings.keep_deleted_bytes_max,
                objects_max=settings.keep_deleted_objects_max,
            )
    except StoreError as error:
        log.warning("retention waits", extra={"error": str(error)})
        return False
