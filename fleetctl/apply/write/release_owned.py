"""Releases the objects that a schedule made, or a Source managed, when their owner is deleted."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.model import Resource
from fleetctl.stores.base import Store
from fleetctl.tracking.annotations import APPLYSET, SCHEDULED_BY
from fleetctl.tracking.kept_by import KEPT_BY, kept_by


def let_go(store: Store, owner: Resource) -> tuple[Resource, ...]:
    """Returns the rows as stored after the release. Runs inside a transaction that is begun."""
    found: list[Resource] = []
    for row in store.resources.list():
        note = kept_by(row.annotations)
        if row.annotations.get(SCHEDULED_BY) == owner.uid:
            free = _drop_note(row, SCHEDULED_BY)
        elif note is not None and note.source == owner.key:
            labels = {key: it for key, it in row.labels.items() if key != APPLYSET}
            free = replace(_drop_note(row, KEPT_BY), labels=labels)
        else:
            continue
        found.append(store.resources.put(free, expected_version=row.version))
    return tuple(found)


def _drop_note(row: Resource, note: str) -> Resource:
    notes = {key: text for key, text in row.annotations.items() if key != note}
    return replace(row, annotations=notes)
