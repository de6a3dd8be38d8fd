"""What a schedule made, or a Source kept, stays when that one goes, and is nobody's then."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.model import Resource
from fleetctl.stores.base import Store
from fleetctl.tracking.annotations import APPLYSET, SCHEDULED_BY
from fleetctl.tracking.kept_by import KEPT_BY, kept_by


def let_go(store: Store, owner: Resource) -> tuple[Resource, ...]:
    """The rows as they are stored by now. Inside a transaction that is begun."""
    found: list[Resource] = []
    for row in store.resources.list():
        note = kept_by(row.annotations)
        if row.annotations.get(SCHEDULED_BY) == owner.uid:
            free = _without(row, SCHEDULED_BY)
        elif note is not None and note.source == owner.key:
            labels = {key: it for key, it in row.labels.items() if key != APPLYSET}
            free = replace(_without(row, KEPT_BY), labels=labels)
        else:
            continue
        found.append(store.resources.put(free, expected_version=row.version))
    return tuple(found)


def _without(row: Resource, note: str) -> Resource:
    notes = {key: text for key, text in row.annotations.items() if key != note}
    return replace(row, annotations=notes)
