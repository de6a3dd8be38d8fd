"""Objects that belong to a Source or a Schedule: guarded against changes by hand, and released when
their owner is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource
from fleetctl.stores.base import Store
from fleetctl.tracking.annotations import APPLYSET, SCHEDULED_BY
from fleetctl.tracking.kept_by import KEPT_BY, KeptBy, read_owner, shorten_commit

SHOWN_MAX = 3


def refuse_kept(rows: Iterable[Resource]) -> None:
    """Raises Refused where a Source manages one of the rows; the message names the Source, file and
    commit."""
    found = [(row, note) for row in rows if (note := read_owner(row.annotations)) is not None]
    if not found:
        return
    told = [_describe_owner(row, note) for row, note in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        told.append(f"and {len(found) - SHOWN_MAX:,} more")
    raise Refused(
        "\nerror: ".join(told),
        hint=f"change it there, or add --override; `drift: Repair` of {found[0][1].source} brings"
        " back what the file says at the next look",
    )


def _describe_owner(row: Resource, note: KeptBy) -> str:
    return f"{row.key} is kept by {note.source}: `{note.file}` at {shorten_commit(note.revision)}"


def let_go(store: Store, owner: Resource) -> tuple[Resource, ...]:
    """Returns the rows as stored after the release. Runs inside a transaction that is begun."""
    found: list[Resource] = []
    for row in store.resources.list():
        note = read_owner(row.annotations)
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
