"""Work that depends on other work, as an apply sees it: the order in which manifests are looked at,
what ended for want of a dependency and may go on, and the notes that say so. Called by propose.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.apply.change import CONFIGURED, Change
from fleetctl.apply.impact import impact_on
from fleetctl.apply.request.options import Order
from fleetctl.controllers.depends.edges import (
    BATCH_JOB,
    DEPENDS_ON,
    FROM_RESULTS,
    edges_in,
    edges_of,
)
from fleetctl.controllers.depends.needed import needed_by, results_wanted
from fleetctl.controllers.depends.results import UNFIT, rows_in, said_of
from fleetctl.controllers.depends.standing import FAILED, SKIPPED, State, standing
from fleetctl.controllers.model import Resource
from fleetctl.controllers.trials.winner import Lacking
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import RESULTS
from fleetctl.tracking.results import rows_taken, told
from fleetctl.tracking.row_indexes import matched_rows

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

GOES_ON = "what it depends on may come out otherwise now"
NAMES_TOLD_MAX = 3


def in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    """What others depend on before them: whether it changes, they must know. Of a circle, as it is
    written; it is refused elsewhere.
    """
    by_key = {it.key: it for it in manifests}
    needs = {
        it.key: [object_key(edge.kind, edge.name, it.namespace) for edge in edges_of(it.spec)]
        for it in manifests
    }
    placed: dict[str, Manifest] = {}
    entered: set[str] = set()
    for manifest in manifests:
        path = [] if manifest.key in entered else [manifest.key]
        while path:
            key = path[-1]
            entered.add(key)
            left = (it for it in needs[key] if it in by_key and it not in entered)
            if (first := next(left, None)) is not None:
                path.append(first)
            else:
                placed[path.pop()] = by_key[key]
    return list(placed.values())


def results_kept(
    stored: Stored, manifest: Manifest, known: Resource | None, moving: Collection[str]
) -> str:
    """The results that are its tasks, as a note keeps them; empty while nobody knows. What was
    taken before stays until there is something else to take: stale where that is to come, so that
    what runs goes on and nothing begins. moving: keys of objects that this apply makes another
    spec of.
    """
    given = results_wanted(manifest.spec)
    if given is None or not isinstance(manifest.spec, Execution):
        return ""
    before = rows_in(known.annotations.get(RESULTS, "")) if known is not None else None
    if before is not None and before.said != said_of(given):
        before = replace(before, stale=True)
    text = before.text() if before is not None else ""
    key = object_key(BATCH_JOB, given.job, manifest.namespace)
    giver = stored.resources.get(BATCH_JOB, given.job, manifest.namespace)
    if giver is None and key not in moving:
        return text
    dependency = next(it for it in needed_by(manifest.spec) if it.job == given.job)
    there = giver is not None and key not in moving
    if not there or standing(dependency, manifest.namespace, giver).state is not State.MET:
        return replace(before, stale=True).text() if before is not None else ""
    assert giver is not None
    known_of = (before.uid, before.generation) if before and not before.stale else None
    if known_of == (giver.uid, giver.generation):
        return text
    rows = rows_taken(giver, given, stored.runs)
    if isinstance(rows, Lacking):
        return replace(before, stale=True).text() if before is not None else ""
    rows = matched_rows(stored.runs, rows, known)
    same = before is not None and not before.stale and before.params == rows.params
    return text if same else rows.text()


def results_told(resource: Resource) -> str:
    """What is known of the results that are its tasks, in a phrase; empty without."""
    document = json.loads(resource.spec)
    edge = next((it for it in edges_in(document) if it.via == FROM_RESULTS), None)
    if edge is None:
        return ""
    key = object_key(edge.kind, edge.name, resource.namespace)
    rows = rows_in(resource.annotations.get(RESULTS, ""))
    return f"known when {key} is over" if rows is None or rows.stale else told(rows.params, key)


def may_go_on(stored: Stored, known: Resource, spec: Execution, moving: Collection[str]) -> bool:
    """Whether it ended because of its dependencies, and none of them is in its way for good now.
    moving: keys of objects that this apply makes another spec of.
    """
    if not ended_for_dependencies(known):
        return False
    return not any(
        object_key(it.kind, it.name, known.namespace) not in moving
        and standing(it, known.namespace, _row(stored, it.kind, it.name, known)).state
        in (State.FAILED, State.SKIPPED)
        for it in needed_by(spec)
    )


def ended_for_dependencies(resource: Resource) -> bool:
    """Under its present spec."""
    if not any(f'"{it}"' in resource.status for it in (FAILED, SKIPPED, UNFIT)):
        return False
    status: Mapping[str, Any] = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    return bool(current and status.get("reason") in (FAILED, SKIPPED, UNFIT))


def revived(
    stored: Stored, moving: set[str], among: Sequence[Manifest], options: Order
) -> Iterator[Change]:
    """Objects that are not applied beside what they ended for want of, and may go on now; also what
    ended for want of these. moving: grows by them.
    """
    applied = {it.key for it in among}
    ended = [
        it
        for it in (stored.resources.naming(f'"{DEPENDS_ON}"') if moving else ())
        if it.key not in applied and ended_for_dependencies(it)
    ]
    while True:
        going = [it for it in ended if it.key not in moving and _needs_one_of(it, moving)]
        going = [it for it in going if may_go_on(stored, it, _spec(it), moving)]
        if not going:
            return
        for row in going:
            moving.add(row.key)
            after = replace(row, generation=row.generation + 1)
            impact = impact_on(stored, after, options)
            yield Change(CONFIGURED, row, after, impact=impact, note=GOES_ON, asked_again=True)


def depends_note(resource: Resource) -> str:
    """Whom it waits for before it begins, in a sentence; empty without."""
    edges = [it for it in edges_in(json.loads(resource.spec)) if it.via == DEPENDS_ON]
    keys = [object_key(it.kind, it.name, resource.namespace) for it in edges]
    if not keys:
        return ""
    more = len(keys) - NAMES_TOLD_MAX
    told = ", ".join(keys[:NAMES_TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"waits for {told}"


def _edges(row: Resource) -> Sequence[Any]:
    return edges_in(json.loads(row.spec))


def _needs_one_of(row: Resource, keys: Collection[str]) -> bool:
    return any(object_key(it.kind, it.name, row.namespace) in keys for it in _edges(row))


def _row(stored: Stored, kind: str, name: str, beside: Resource) -> Resource | None:
    return stored.resources.get(kind, name, beside.namespace)


def _spec(row: Resource) -> Execution:
    spec = parse_spec(row.kind, row.spec)
    assert isinstance(spec, Execution)
    return spec
