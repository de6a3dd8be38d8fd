"""What deleted objects left behind is taken away once it is old, or too much: in small steps, each
a transaction of its own, so that ticks go on between two of them. Called by retention.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.controllers.retention.limits import Limits

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

STEP_PAUSE_S = 0.05
FOREVER_BYTES = 1 << 62


def forget_some(state: State, limits: Limits) -> bool:
    """Whether there is more to take. A store that refuses is asked again in the next round."""
    store, kept_s = state.store, limits.max_age_s
    try:
        with store.transaction():
            return store.gone.forget(
                until_s=0.0 if kept_s is None else state.clock.now_s() - kept_s,
                bytes_max=FOREVER_BYTES if limits.max_bytes is None else limits.max_bytes,
                objects_max=state.settings.keep_deleted_objects_max,
            )
    except StoreError as error:
        log.warning("retention waits", extra={"error": str(error)})
        return False
