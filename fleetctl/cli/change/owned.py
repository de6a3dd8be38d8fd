"""What goes with an object that is deleted: what a schedule made, what a Source keeps. Asked by
`delete` before anything is.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.clock import SystemClock
from fleetctl.common.text import and_more, plural
from fleetctl.tracking.annotations import SCHEDULED_BY
from fleetctl.tracking.kept_by import kept_by
from fleetctl.views.objects import DELETING, View
from fleetctl.views.reading import Reading

NAMES_SHOWN_MAX = 5


def going_with(owner: View, reading: Reading) -> Iterator[str]:
    """A sentence for each loss; nothing of objects that own none."""
    if owner.phase == DELETING:
        return
    if owner.kind.name == "Schedule":
        mine = [
            it
            for it in reading.views(namespace=owner.resource.namespace)
            if it.resource.annotations.get(SCHEDULED_BY) == owner.resource.uid
        ]
        yield from _running(owner, mine, reading)
    elif owner.kind.name == "Source" and owner.spec().get("prune"):
        mine = [it for it in reading.views() if _keeps(owner, it)]
        if mine:
            names = and_more([it.key for it in mine], most=NAMES_SHOWN_MAX)
            yield f"{owner.key}: {plural(len(mine), 'object')} would go with it: {names}"
        yield from _running(owner, mine, reading)
        for it in mine:
            if it.kind.name == "Volume" and it.spec().get("deletionPolicy") == "Delete":
                yield f"{owner.key}: {it.key} goes with its data (deletionPolicy is Delete)"


def _keeps(source: View, seen: View) -> bool:
    note = kept_by(seen.resource.annotations)
    return note is not None and note.source == source.key and seen.phase != DELETING


def _running(owner: View, mine: list[View], reading: Reading) -> Iterator[str]:
    """Of each object with live runs."""
    now_s = SystemClock().now_s()
    for seen in mine:
        runs = [it for it in reading.live_attempts(seen) if it.started_at_s is not None]
        if runs:
            spent_s = sum(max(0.0, now_s - (it.started_at_s or now_s)) for it in runs)
            what = plural(len(runs), f"running {seen.kind.unit}")
            yield (
                f"{owner.key}: {seen.key} goes with it: {what} would be stopped"
                f" ({spent_s:,.0f} s of work)"
            )
