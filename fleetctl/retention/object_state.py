"""Reads the status of a store's objects, to decide about their files: which have finished, since
when, and which objects still need them. Never writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.controllers.depends.edges import edges_in
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import object_key
from fleetctl.tracking.task_inputs import digests_in

if TYPE_CHECKING:
    from fleetctl.stores.read.reader import Reader
    from fleetctl.stores.read.rows import ResourceRow


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The status of an object. runs: its kind does work. since_s: when it finished, or was made.
    bytes: approximate size of its records. needed_by: keys of unfinished objects that take input
    from it, or wait for it. inputs: digests of the files that its tasks are made of.
    """

    uid: str
    key: str
    runs: bool
    over: bool
    since_s: float
    bytes: int
    annotations: Mapping[str, str]
    needed_by: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def read_object_states(reader: Reader) -> dict[str, ObjectState]:
    """Returns by uid all objects that are not being deleted."""
    rows = [it for it in reader.resources(specs=True) if it.deleted_at_s is None]
    live = reader.live_runs()
    sizes = reader.record_bytes()
    statuses = {it.uid: _read_status(it) for it in rows}
    over = {it.uid for it in rows if it.uid not in live and is_over(statuses[it.uid], it)}
    needed = _list_needed(it for it in rows if it.uid not in over)
    found = {}
    for row in rows:
        key = object_key(row.kind, row.name, row.namespace)
        since = statuses[row.uid].get("completionTime")
        found[row.uid] = ObjectState(
            uid=row.uid,
            key=key,
            runs=row.kind in KINDS and KINDS[row.kind].runs,
            over=row.uid in over,
            since_s=float(since) if isinstance(since, int | float) else row.created_at_s,
            bytes=sizes.get(row.uid, 0),
            annotations=row.annotations,
            needed_by=tuple(needed.get(key, ())),
            inputs=digests_in(row.spec or ""),
        )
    return found


def is_over(status: Mapping[str, object], row: ResourceRow) -> bool:
    """Returns true if its newest spec has finished; its runs are not checked."""
    seen = status.get("observedGeneration")
    current = isinstance(seen, int) and seen >= row.generation
    return current and status.get("phase") in TERMINAL_PHASES


def _list_needed(rows: Iterable[ResourceRow]) -> dict[str, list[str]]:
    """Returns dependents by the key of the needed object."""
    found: dict[str, list[str]] = {}
    for row in rows:
        key = object_key(row.kind, row.name, row.namespace)
        for edge in edges_in(_parse_document(row.spec or "{}")):
            found.setdefault(object_key(edge.kind, edge.name, row.namespace), []).append(key)
    return found


def _read_status(row: ResourceRow) -> Mapping[str, object]:
    return _parse_document(row.status or "{}")


def _parse_document(text: str) -> Mapping[str, object]:
    """Parses a status; an unreadable one is empty, so that it counts as unfinished."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, dict):
        return found
    return {}
