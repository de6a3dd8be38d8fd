"""The desired state, written to the store: apply, delete, suspend. Called by the socket server and
by tests.

Each call is one transaction; what it answers is durable when it returns (P1). Decides nothing about
runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.apply.propose import commit, propose
from fleetctl.apply.request.options import Order
from fleetctl.apply.write.letting_go import let_go
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.kinds.queue import QueueSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.annotations import APPROVED, RECONCILE
from fleetctl.tracking.by_hand import note_of_edit, noted_fields
from fleetctl.tracking.kept_by import HELD

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Outcome:
    """What apply did with one manifest: created | configured | unchanged | pruned, and a sentence
    or nothing.
    """

    key: str
    uid: str
    outcome: str
    message: str = ""


def apply(
    store: Store, manifests: Sequence[Manifest], now_s: float, options: Order | None = None
) -> list[Outcome]:
    """Make the store ask for these manifests, all or none, whatever it costs running work."""
    changes = propose(store, manifests, options or Order(), now_s)
    commit(store, changes, now_s)
    return [Outcome(it.key, it.after.uid, it.outcome, it.message) for it in changes]


def delete(
    store: Store,
    kind: str,
    name: str,
    now_s: float,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    orphans: bool = False,
) -> str:
    """Mark it as deleted; the row stays until everything of it is confirmed gone. Returns the uid.
    orphans: what a schedule made or a Source kept stays, and is its own from now on.

    Raises NotFound.
    """
    resource = find(store, kind, name, namespace)
    with store.transaction():
        if orphans:
            let_go(store, resource)
        store.resources.put(
            replace(resource, deleted_at_s=now_s), expected_version=resource.version
        )
        # Whoever deletes it and applies it again wants it to run.
        store.cache.forget(resource.uid)
        store.events.record(
            [EventRow(resource.uid, now_s, "Normal", "Deleted", "deletion asked for")]
        )
    return resource.uid


def suspend(
    store: Store,
    kind: str,
    name: str,
    now_s: float,
    *,
    wanted: bool = True,
    namespace: str = DEFAULT_NAMESPACE,
) -> bool:
    """Set or clear spec.suspend; False when it was so already. Raises NotFound and UsageError."""
    resource = find(store, kind, name, namespace)
    spec = parse_spec(resource.kind, resource.spec)
    if not isinstance(spec, Execution | ScheduleSpec | SourceSpec | QueueSpec):
        raise UsageError(f"a {kind} has nothing to suspend; it runs no work")
    if spec.suspend == wanted:
        return False
    changed = replace(
        resource,
        spec=dump_spec(spec.model_copy(update={"suspend": wanted})),
        generation=resource.generation + 1,
    )
    notes = noted_fields(changed.annotations, note_of_edit(resource, changed))
    changed = replace(changed, annotations=notes)
    word = "Suspended" if wanted else "Resumed"
    message = f"{word.lower()} by a user"
    with store.transaction():
        store.resources.put(changed, expected_version=resource.version)
        store.events.record([EventRow(resource.uid, now_s, "Normal", word, message)])
    return True


def reconcile(
    store: Store,
    name: str,
    request: str,
    *,
    approved: bool,
    seen: str = "",
    namespace: str = DEFAULT_NAMESPACE,
) -> Resource:
    """Ask a Source to look at its repository now. request: a name that its status tells once that
    is done. approved: what the commit destroys may be destroyed. seen: which one that is; without
    it the one that waits for consent now, or where none does, the one that is found. Raises
    NotFound.
    """
    source = find(store, "Source", name, namespace)
    notes = {key: it for key, it in source.annotations.items() if key != APPROVED}
    notes[RECONCILE] = request
    if approved:
        status = json.loads(source.status or "{}")
        held = status.get("attemptedRevision") if status.get("reason") == HELD else ""
        notes[APPROVED] = f"{request} {seen or held}".rstrip()
    with store.transaction():
        return store.resources.put(
            replace(source, annotations=notes), expected_version=source.version
        )


def find(store: Store, kind: str, name: str, namespace: str = DEFAULT_NAMESPACE) -> Resource:
    """The living resource of that name. Raises NotFound."""
    resource = store.resources.get(kind, name, namespace)
    if resource is None:
        key = object_key(kind, name, namespace)
        flag = key.removeprefix(f"{kind.lower()}/{name}")
        raise NotFound(f"{key} is not there", hint=f"fleetctl get {kind.lower()}s{flag}")
    return resource
