"""Lists the losses of a deletion: data, and the objects that go with their owner, made by a
schedule or managed by a Source. Called before any change, by `delete` and by the server.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.clock import SystemClock
from fleetctl.common.text import and_more, count_noun
from fleetctl.tracking.annotations import SCHEDULED_BY
from fleetctl.tracking.kept_by import kept_by
from fleetctl.views.objects import DELETING, View
from fleetctl.views.store_reading import StoreReading

NAMES_SHOWN_MAX = 5


def deletion_losses(
    seen: View | None,
    reading: StoreReading,
    *,
    orphans: bool = False,
) -> list[str]:
    """Returns a sentence for each loss. orphans: owned objects stay."""
    if seen is None or seen.phase == DELETING:
        return []
    losses = []
    if seen.kind.name == "Volume" and seen.spec().get("deletionPolicy") == "Delete":
        losses.append(f"{seen.key}: deleting it deletes its data (deletionPolicy is Delete)")
    if not orphans:
        losses += going_with(seen, reading)
    return losses


def going_with(owner: View, reading: StoreReading) -> Iterator[str]:
    """Yields a sentence for each loss; none for objects without owned ones."""
    if owner.phase == DELETING:
        return
    if owner.kind.name == "Schedule":
        mine = [
            it
            for it in reading.views(namespace=owner.resource.namespace)
            if it.resource.annotations.get(SCHEDULED_BY) == owner.resource.uid
        ]
        yield from _describe_running(owner, mine, reading)
    elif owner.kind.name == "Source" and owner.spec().get("prune"):
        mine = [it for it in reading.views() if _keeps_object(owner, it)]
        if mine:
            names = and_more([it.key for it in mine], most=NAMES_SHOWN_MAX)
            yield f"{owner.key}: {count_noun(len(mine), 'object')} would go with it: {names}"
        yield from _describe_running(owner, mine, reading)
        for it in mine:
            if it.kind.name == "Volume" and it.spec().get("deletionPolicy") == "Delete":
                yield f"{owner.key}: {it.key} goes with its data (deletionPolicy is Delete)"


def _keeps_object(source: View, seen: View) -> bool:
    note = kept_by(seen.resource.annotations)
    return note is not None and note.source == source.key and seen.phase != DELETING


def _describe_running(
    owner: View,
    mine: list[View],
    reading: StoreReading,
) -> Iterator[str]:
    """Yields a sentence for each object with live runs."""
    now_s = SystemClock().now_s()
    for seen in mine:
        runs = [it for it in reading.live_attempts(seen) if it.started_at_s is not None]
        if runs:
            spent_s = sum(max(0.0, now_s - (it.started_at_s or now_s)) for it in runs)
            what = count_noun(len(runs), f"running {seen.kind.unit}")
            yield (
                f"{owner.key}: {seen.key} goes with it: {what} would be stopped"
                f" ({spent_s:,.0f} s of work)"
            )
