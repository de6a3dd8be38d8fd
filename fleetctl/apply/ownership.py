"""Guards objects that a Source manages: they change in its repository, by hand only on request."""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource
from fleetctl.tracking.kept_by import KeptBy, kept_by, shorten_commit

SHOWN_MAX = 3


def refuse_kept(rows: Iterable[Resource]) -> None:
    """Raises Refused where a Source manages one of the rows; the message names the Source, file and
    commit."""
    found = [(row, note) for row in rows if (note := kept_by(row.annotations)) is not None]
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
