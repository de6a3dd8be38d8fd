"""Records go in small steps, each a transaction of its own, so that ticks go on between two of
them. Called by retention.py. A store that refuses is asked again in the next round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.controllers.kinds.retention.decide import Doomed
from fleetctl.controllers.kinds.retention.limits import Limits
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.stores.base import EventRow
from fleetctl.tracking.track import track_of

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

STEP_PAUSE_S = 0.05
FOREVER_BYTES = 1 << 62
REASON = "PastRetention"


def forget_some(state: State, limits: Limits) -> bool:
    """What deleted objects left behind. Whether there is more to take."""
    kept_s = limits.max_age_s
    return _step(
        state,
        lambda: state.store.gone.forget(
            until_s=0.0 if kept_s is None else state.clock.now_s() - kept_s,
            bytes_max=FOREVER_BYTES if limits.max_bytes is None else limits.max_bytes,
            objects_max=state.settings.keep_deleted_objects_max,
        ),
    )


def thin_some(state: State, it: Doomed) -> bool:
    """Metrics over steps of an object that is over. Whether there is more to take."""

    def step() -> bool:
        if not is_over(state.store.resources.of(it.item.key)):
            return False
        if state.store.runs.thin(it.item.key):
            return True
        text = f"of its metrics only the last is kept: past `retention.runs.{it.why}`"
        state.store.events.record([_event(state, it, text)])
        return False

    return _step(state, step)


def replace_events(state: State, it: Doomed) -> bool:
    """One event in place of all that there were."""

    def step() -> bool:
        if is_over(state.store.resources.of(it.item.key)):
            text = f"earlier events are past `retention.events.{it.why}`"
            state.store.events.replace(_event(state, it, text))
        return False

    return _step(state, step)


def forget_results(state: State, it: Doomed) -> bool:
    """What came of it serves no equal work any more; its own results stay."""

    def step() -> bool:
        state.store.cache.forget(it.item.key)
        return False

    return _step(state, step)


def shrink_some(state: State) -> bool:
    """The store's files. Whether there is more to give back."""
    return _step(state, state.store.shrink)


def is_over(row: Resource | None) -> bool:
    """As it is now: somebody may have asked for more of it since it was listed."""
    if row is None or row.deleted_at_s is not None:
        return False
    track = track_of(row)
    return track.dormant and track.status.get("phase") in TERMINAL_PHASES


def _event(state: State, it: Doomed, text: str) -> EventRow:
    return EventRow(it.item.key, state.clock.now_s(), "Normal", REASON, text)


def _step(state: State, work: Callable[[], bool]) -> bool:
    try:
        with state.store.transaction():
            return work()
    except StoreError as error:
        log.warning("retention waits", extra={"error": str(error)})
        return False
