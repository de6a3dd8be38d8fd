"""Writes the desired state to the store: apply, delete, suspend. Called by the socket server and by
tests.

Each call is one transaction; its result is durable when it returns (P1). Decides nothing about
runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.apply.propose import propose_changes, store_changes
from fleetctl.apply.request.options import ApplyOptions
from fleetctl.apply.write.release_owned import let_go
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.specs.blocks.common import WorkSpec
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
class ApplyOutcome:
    """The effect of apply on one manifest: created | configured | unchanged | pruned, and a
    sentence, or none.
    """

    key: str
    uid: str
    outcome: str
    message: str = ""


def apply_manifests(
    store: Store,
    manifests: Sequence[Manifest],
    now_s: float,
    options: ApplyOptions | None = None,
) -> list[ApplyOutcome]:
    """Stores these manifests, all or none, whatever it costs running work."""
    changes = propose_changes(store, manifests, options or ApplyOptions(), now_s)
    store_changes(store, changes, now_s)
    return [ApplyOutcome(it.key, it.after.uid, it.outcome, it.message) for it in changes]


def delete_object(
    store: Store,
    kind: str,
    name: str,
    now_s: float,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    orphans: bool = False,
) -> str:
    """Marks one object as deleted; see delete_objects. Returns its uid. Raises NotFound."""
    (uid,) = delete_objects(store, [(kind, name, namespace)], now_s, orphans=orphans)
    return uid


def delete_objects(
    store: Store,
    keys: Sequence[tuple[str, str, str]],
    now_s: float,
    *,
    orphans: bool = False,
) -> list[str]:
    """Marks objects as deleted, all or none; each row stays until every part is confirmed gone.
    Returns their uids. keys: (kind, name, namespace). orphans: objects that a schedule made or a
    Source managed stay, and have no owner from now on.

    Raises NotFound.
    """
    uids = []
    with store.transaction():
        for kind, name, namespace in keys:
            resource = find_object(store, kind, name, namespace)
            if orphans:
                let_go(store, resource)
            store.resources.put(
                replace(resource, deleted_at_s=now_s), expected_version=resource.version
            )
            # A user who deletes it and applies it again wants it to run.
            store.cache.forget(resource.uid)
            store.events.record(
                [
                    EventRow(
                        resource.uid,
                        now_s,
                        "Normal",
                        "Deleted",
                        "deletion asked for",
                    )
                ]
            )
            uids.append(resource.uid)
    return uids


def suspend_object(
    store: Store,
    kind: str,
    name: str,
    now_s: float,
    *,
    wanted: bool = True,
    namespace: str = DEFAULT_NAMESPACE,
) -> bool:
    """Sets or clears spec.suspend; False when it was so already. Raises NotFound and UsageError."""
    resource = find_object(store, kind, name, namespace)
    spec = parse_spec(resource.kind, resource.spec)
    if not isinstance(spec, WorkSpec | ScheduleSpec | SourceSpec | QueueSpec):
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
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Normal",
                    word,
                    message,
                )
            ]
        )
    return True


def request_reconcile(
    store: Store,
    name: str,
    request: str,
    *,
    approved: bool,
    seen: str = "",
    namespace: str = DEFAULT_NAMESPACE,
) -> Resource:
    """Asks a Source to read its repository now. request: a name that its status shows once that is
    done. approved: losses of the commit are allowed. seen: the approved commit; without it the one
    that waits for consent now, or else the one that is found. Raises NotFound.
    """
    source = find_object(store, "Source", name, namespace)
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


def find_object(
    store: Store,
    kind: str,
    name: str,
    namespace: str = DEFAULT_NAMESPACE,
) -> Resource:
    """Returns the living resource with that name. Raises NotFound."""
    resource = store.resources.get(kind, name, namespace)
    if resource is None:
        key = object_key(kind, name, namespace)
        flag = key.removeprefix(f"{kind.lower()}/{name}")
        raise NotFound(f"{key} is not there", hint=f"fleetctl get {kind.lower()}s{flag}")
    return resource
