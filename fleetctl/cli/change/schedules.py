"""What runs of a schedule, and would be stopped with it. Asked by `delete` before anything is."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.clock import SystemClock
from fleetctl.common.text import plural
from fleetctl.tracking.annotations import SCHEDULED_BY
from fleetctl.views.objects import DELETING, View
from fleetctl.views.reading import Reading


def running_of(schedule: View, reading: Reading) -> Iterator[str]:
    """A sentence for each object that it made and that has live runs; nothing of other kinds."""
    if not schedule.kind.starts or schedule.phase == DELETING:
        return
    now_s = SystemClock().now_s()
    for seen in reading.views(namespace=schedule.resource.namespace):
        if seen.resource.annotations.get(SCHEDULED_BY) != schedule.resource.uid:
            continue
        runs = [it for it in reading.live_attempts(seen) if it.started_at_s is not None]
        if runs:
            spent_s = sum(max(0.0, now_s - (it.started_at_s or now_s)) for it in runs)
            what = plural(len(runs), f"running {seen.kind.unit}")
            yield (
                f"{schedule.key}: {seen.key} goes with it: {what} would be stopped"
                f" ({spent_s:,.0f} s of work)"
            )
