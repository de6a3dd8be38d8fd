"""Retention: what deleted objects left behind is taken away once it is old, or too much; and copies
of sources that no object names.

Called by the loop as a helper. Each step is small and a transaction of its own, so that turns go on
between two of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError

if TYPE_CHECKING:
    from fleetctl.engine.engine import Engine

log = logging.getLogger("fleetctl.engine")

STEP_PAUSE_S = 0.05


async def forget_forever(engine: Engine) -> None:
    while True:
        while forget_some(engine):
            await asyncio.sleep(STEP_PAUSE_S)
        if engine.sources is not None:
            # Of all that is stored: what sleeps may be asked to run again, with its copy.
            notes = engine.store.resources.annotations()
            await asyncio.to_thread(engine.sources.sweep, notes)
        await asyncio.sleep(engine.settings.forget_every_s)


def forget_some(engine: Engine) -> bool:
    """Whether there is more to take. A store that refuses is asked again in the next round."""
    settings, store = engine.settings, engine.store
    until_s = engine.clock.now_s() - settings.keep_deleted_s
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
