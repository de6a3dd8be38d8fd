"""What applying manifests changes, found out before anything is stored, and the storing of it.

`propose` reads alone, so a dry run and a plan ask it too; `commit` writes what was proposed. Called
by the socket server and by `plan`, `diff` and dry runs. What a manifest makes of an object is in
drafting.py, what that does to work in impacts.py, how it is told in changes.py; what a person must
allow first is in consent.py, which objects go with `--prune` in pruning.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from controllers.model import Resource, RunState
from fleetctl.engine.changes import (
    CONFIGURED,
    CREATED,
    PRUNED,
    UNCHANGED,
    Change,
    differences,
)
from fleetctl.engine.drafting import drafted, named_volumes
from fleetctl.engine.impacts import fresh_impact, impact_on
from fleetctl.engine.orders import Order
from fleetctl.engine.pruning import pruned
from fleetctl.errors import Conflict
from fleetctl.stores.base import EventRow, Store, Stored
from specs.changes import same
from specs.kinds import KINDS
from specs.provider import ProviderSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def propose(
    stored: Stored, manifests: Sequence[Manifest], order: Order, now_s: float
) -> list[Change]:
    """What each manifest changes, in their order, then what is pruned.

    A volume that a template names and nobody declares is created with deletionPolicy Retain, as
    Modal's create_if_missing does, so that no data sits where `get volumes` does not show it.
    """
    changes: list[Change] = []
    volumes = {(it.name, it.namespace) for it in manifests if it.kind == "Volume"}
    for manifest in manifests:
        for volume in named_volumes(stored, manifest, volumes, now_s):
            volumes.add((volume.name, volume.namespace))
            changes.append(Change(CREATED, None, volume, note=f"named by {manifest.name}"))
        changes.append(_proposed(stored, manifest, order, now_s))
    if order.pruning is not None:
        kept = {manifest.key for manifest in manifests}
        within = {order.namespace, *(it.namespace for it in manifests if KINDS[it.kind].namespaced)}
        for doomed in pruned(stored, order.applyset, kept, order.pruning, within):
            gone = replace(doomed, deleted_at_s=now_s)
            # As the pass of a deleted object reads it: one that nobody can read goes too.
            changes.append(Change(PRUNED, doomed, gone, impact=impact_on(stored, gone, order)))
    return changes


def commit(store: Store, changes: Sequence[Change], now_s: float) -> None:
    """Store what was proposed, all or none. Raises Conflict when an object changed in between."""
    with store.transaction():
        for change in changes:
            if change.outcome == UNCHANGED:
                continue
            if change.asked_again:
                _forget_refusals(store, change.after)
            version = change.before.version if change.before is not None else None
            store.resources.put(change.after, expected_version=version)
        store.events.record(
            [
                EventRow(it.after.uid, now_s, "Normal", it.outcome.title(), it.record)
                for it in changes
                if it.outcome != UNCHANGED
            ]
        )


def _proposed(stored: Stored, manifest: Manifest, order: Order, now_s: float) -> Change:
    known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
    wish = drafted(manifest, order, known, now_s)
    if known is None:
        return Change(CREATED, None, wish, impact=fresh_impact(stored, manifest, wish, order))
    if isinstance(manifest.spec, ProviderSpec):
        _refuse_another_type(known, manifest.spec)
    same_spec = same(json.loads(known.spec), json.loads(wish.spec))
    same_words = known.labels == wish.labels and known.annotations == wish.annotations
    if same_spec and same_words:
        if _was_refused(known):
            again = replace(known, generation=known.generation + 1)
            note = "it was refused; trying again"
            return Change(CONFIGURED, known, again, note=note, asked_again=True)
        return Change(UNCHANGED, known, known)
    after = replace(
        known,
        spec=known.spec if same_spec else wish.spec,
        labels=wish.labels,
        annotations=wish.annotations,
        generation=known.generation + (not same_spec),
    )
    affected = None if same_spec else impact_on(stored, after, order)
    return Change(CONFIGURED, known, after, tuple(differences(known, after)), affected)


def _refuse_another_type(known: Resource, spec: ProviderSpec) -> None:
    """What runs at one sort of provider cannot be looked after by another."""
    before = json.loads(known.spec).get("type")
    if before != spec.type and {before, spec.type} != {None, known.name}:
        raise Conflict(
            f"{known.key} is of type `{before}`, which never changes",
            hint=f"give the `{spec.type}` another name, or delete {known.key} first",
        )


def _was_refused(resource: Resource) -> bool:
    status = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    return bool(current and status.get("phase") == "Failed" and status.get("reason") == "Refused")


def _forget_refusals(store: Store, refused: Resource) -> None:
    """The machine may have what it lacked; applying the same file again says that it should try."""
    for run, _ in list(store.runs.of(refused.uid)):
        if run.state is RunState.REFUSED:
            # Of no template any more, it says nothing of the present wish; what it said stays.
            passed = replace(run, template_hash="")
            store.runs.advance(passed, from_states=frozenset({RunState.REFUSED}))
