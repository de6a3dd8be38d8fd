"""Deletions: the objects of an apply set that `apply --prune` removes, the guard against too many
at once, and the losses of a deletion: data, and objects that go with their owner.

Called before any change, by `delete` and by the server.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused
from fleetctl.common.text import and_more, count_noun
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import APPLYSET, SCHEDULED_BY
from fleetctl.tracking.kept_by import read_owner
from fleetctl.views.objects import DELETING, View
from fleetctl.views.store_reading import StoreReading

# A checkout that is empty by mistake must not empty the fleet; one that lost a single object may.
SHARE_MAX = 0.5
ALWAYS_ALLOWED = 1

NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class PruneLimit:
    """The number of objects that may be deleted at once: a count, or a share of the set; neither =
    the guard. said: the flag for another number, for the message. spared: keys of objects that
    always stay.
    """

    most: int | None = None
    share: float | None = None
    said: str = "--max-prune {}"
    spared: frozenset[str] = frozenset()

    def allowed(self, members: int) -> int:
        if self.most is not None:
            return self.most
        if self.share is not None:
            return int(members * self.share)
        return max(ALWAYS_ALLOWED, int(members * SHARE_MAX))


def find_pruned(
    stored: ReadableStore,
    applyset: str,
    kept: Collection[str],
    pruning: PruneLimit,
    namespaces: Collection[str] | None = (DEFAULT_NAMESPACE,),
) -> list[Resource]:
    """Returns the objects of the set in these namespaces that no manifest names, the newest first:
    users before the objects that they use. kept: the keys that manifests name. namespaces: None =
    all.

    Raises Refused when more would be deleted than the guard allows.
    """
    members = [
        it
        for it in stored.resources.list()
        if it.deleted_at_s is None
        and it.labels.get(APPLYSET) == applyset
        and (namespaces is None or it.namespace in namespaces)
    ]
    doomed = [it for it in reversed(members) if it.key not in kept and it.key not in pruning.spared]
    allowed = pruning.allowed(len(members))
    if len(doomed) > allowed:
        raise Refused(
            f"{len(doomed)} of the {len(members)} objects of apply set `{applyset}` are no longer "
            f"in the files, and at most {allowed} may be pruned: {_list_keys(doomed)}",
            hint=f"{pruning.said.format(len(doomed))} deletes them; nothing was changed",
        )
    return doomed


def list_going_with(stored: ReadableStore, owner: Resource) -> list[Resource]:
    """Returns the objects that a schedule made, or that a pruning Source manages: they are deleted
    with the owner, the last first, and so are the objects that they own.
    """
    found: dict[str, Resource] = {}
    left = [owner]
    while left and any(KINDS[it.kind].starts for it in left):
        owners = {it.uid for it in left}
        keepers = {it.key for it in left if _is_pruning_source(it)}
        left = [
            it
            for it in stored.resources.list()
            if it.deleted_at_s is None
            and it.uid not in found
            and it.uid != owner.uid
            and (it.annotations.get(SCHEDULED_BY) in owners or _find_owner(it) in keepers)
        ]
        found |= {it.uid: it for it in left}
    return [*reversed(found.values())]


def _is_pruning_source(row: Resource) -> bool:
    return row.kind == "Source" and json.loads(row.spec).get("prune") is True


def _find_owner(row: Resource) -> str:
    note = read_owner(row.annotations)
    if note is None:
        return ""
    return note.source


def _list_keys(doomed: Sequence[Resource]) -> str:
    shown = ", ".join(it.key for it in doomed[:5])
    if len(doomed) <= 5:
        return shown
    return f"{shown} and {len(doomed) - 5} more"


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
        losses += lose_with_owner(seen, reading)
    return losses


def lose_with_owner(owner: View, reading: StoreReading) -> Iterator[str]:
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
    note = read_owner(seen.resource.annotations)
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
