"""How the objects of a store stand, for what hangs on them: which are over, since when, and what
still needs them. Reads the store; writes nothing.
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

if TYPE_CHECKING:
    from fleetctl.stores.read.reader import Reader
    from fleetctl.stores.read.rows import ResourceRow


@dataclass(frozen=True, slots=True)
class Standing:
    """runs: whether it is of a kind that does work. since_s: when it was over, or was made. bytes:
    about what its records take. needed_by: keys of objects that are not over and take something
    from it, or wait for it.
    """

    uid: str
    key: str
    runs: bool
    over: bool
    since_s: float
    bytes: int
    annotations: Mapping[str, str]
    needed_by: tuple[str, ...] = ()


def standings(reader: Reader) -> dict[str, Standing]:
    """By uid, of all that are not being deleted."""
    rows = [it for it in reader.resources(specs=True) if it.deleted_at_s is None]
    live, sizes = reader.live_runs(), reader.record_bytes()
    statuses = {it.uid: _status(it) for it in rows}
    over = {it.uid for it in rows if it.uid not in live and is_over(statuses[it.uid], it)}
    needed = _needed(it for it in rows if it.uid not in over)
    found = {}
    for row in rows:
        key = object_key(row.kind, row.name, row.namespace)
        since = statuses[row.uid].get("completionTime")
        found[row.uid] = Standing(
            uid=row.uid,
            key=key,
            runs=row.kind in KINDS and KINDS[row.kind].runs,
            over=row.uid in over,
            since_s=float(since) if isinstance(since, int | float) else row.created_at_s,
            bytes=sizes.get(row.uid, 0),
            annotations=row.annotations,
            needed_by=tuple(needed.get(key, ())),
        )
    return found


def is_over(status: Mapping[str, object], row: ResourceRow) -> bool:
    """Whether its newest spec came to its end; none of its runs is asked."""
    seen = status.get("observedGeneration")
    current = isinstance(seen, int) and seen >= row.generation
    return current and status.get("phase") in TERMINAL_PHASES


def _needed(rows: Iterable[ResourceRow]) -> dict[str, list[str]]:
    """By the key of what is needed: who needs it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        key = object_key(row.kind, row.name, row.namespace)
        for edge in edges_in(_document(row.spec or "{}")):
            found.setdefault(object_key(edge.kind, edge.name, row.namespace), []).append(key)
    return found


def _status(row: ResourceRow) -> Mapping[str, object]:
    return _document(row.status or "{}")


def _document(text: str) -> Mapping[str, object]:
    """Of one that cannot be read nothing is known, so that it counts as not over."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
