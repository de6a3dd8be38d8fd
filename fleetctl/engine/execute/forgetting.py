"""Deletes records in small steps, each a transaction of its own, so that ticks go on between two
steps. Called by retention.py. After an error of the store the next round tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.controllers.kinds.retention.limits import RetentionLimits
from fleetctl.controllers.kinds.retention.retention_decision import ExpiredItem
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.stores.base import EventRow
from fleetctl.tracking.track import track_of

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.engine_state import EngineState

log = logging.getLogger("fleetctl.engine")

STEP_PAUSE_S = 0.05
FOREVER_BYTES = 1 << 62
REASON = "PastRetention"


def forget_some(state: EngineState, limits: RetentionLimits) -> bool:
    """Removes records of deleted objects. Returns true if more remain."""
    kept_s = limits.max_age_s
    return _run_step(
        state,
        lambda: state.store.gone.forget(
            until_s=0.0 if kept_s is None else state.clock.now_s() - kept_s,
            bytes_max=FOREVER_BYTES if limits.max_bytes is None else limits.max_bytes,
            objects_max=state.settings.keep_deleted_objects_max,
        ),
    )


def thin_some(state: EngineState, it: ExpiredItem) -> bool:
    """Deletes metrics of a finished object's steps. Returns true if more remain."""

    def step() -> bool:
        if not is_over(state.store.resources.of(it.item.key)):
            return False
        if state.store.runs.thin(it.item.key):
            return True
        text = f"of its metrics only the last is kept: past `retention.runs.{it.why}`"
        state.store.events.record([_build_event(state, it, text)])
        return False

    return _run_step(state, step)


def replace_events(state: EngineState, it: ExpiredItem) -> bool:
    """Replaces all events of the object by one."""

    def step() -> bool:
        if is_over(state.store.resources.of(it.item.key)):
            text = f"earlier events are past `retention.events.{it.why}`"
            state.store.events.replace(_build_event(state, it, text))
        return False

    return _run_step(state, step)


def forget_results(state: EngineState, it: ExpiredItem) -> bool:
    """Drops the results from the reuse of equal work; the object's own results stay."""

    def step() -> bool:
        state.store.cache.forget(it.item.key)
        return False

    return _run_step(state, step)


def shrink_some(state: EngineState) -> bool:
    """Shrinks the store's files. Returns true if more space can be freed."""
    return _run_step(state, state.store.shrink)


def is_over(row: Resource | None) -> bool:
    """Checks the present row: a user may have requested more work since it was listed."""
    if row is None or row.deleted_at_s is not None:
        return False
    track = track_of(row)
    return track.dormant and track.status.get("phase") in TERMINAL_PHASES


def _build_event(
    state: EngineState,
    it: ExpiredItem,
    text: str,
) -> EventRow:
    return EventRow(
        it.item.key,
        state.clock.now_s(),
        "Normal",
        REASON,
        text,
    )


def _run_step(state: EngineState, work: Callable[[], bool]) -> bool:
    try:
        with state.store.transaction():
            return work()
    except StoreError as error:
        log.warning("retention waits", extra={"error": str(error)})
        return False
