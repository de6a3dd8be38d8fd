"""Work that depends on other work: the order of manifests in an apply, objects that ended for want
of a dependency and may resume, and the notes on both. Called by propose.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.apply.change import CONFIGURED, Change
from fleetctl.apply.impact import impact_on
from fleetctl.apply.request.options import ApplyOptions
from fleetctl.controllers.depends.dependency_status import (
    FAILED,
    SKIPPED,
    DependencyState,
    get_dependency_status,
)
from fleetctl.controllers.depends.edges import (
    BATCH_JOB,
    DEPENDS_ON,
    FROM_RESULTS,
    edges_in,
    edges_of,
)
from fleetctl.controllers.depends.needed import find_requested_results, needed_by
from fleetctl.controllers.depends.results import UNFIT, format_request, rows_in
from fleetctl.controllers.model import Resource
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import RESULTS
from fleetctl.tracking.result_parameters import collect_result_rows, describe_results
from fleetctl.tracking.row_indexes import matched_rows

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

GOES_ON = "its dependencies may end differently now"
NAMES_TOLD_MAX = 3


def in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Returns each manifest after its dependencies, so that it can see whether they change. A cycle
    stays in the written order; another check refuses it.
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
    stored: ReadableStore,
    manifest: Manifest,
    known: Resource | None,
    moving: Collection[str],
) -> str:
    """Returns the results that are its tasks, as an annotation stores them; empty while unknown.
    Earlier results stay until newer ones exist: stale where newer ones are to come, so that running
    work continues and no new work begins. moving: keys of objects that get another spec in this
    apply.
    """
    given = find_requested_results(manifest.spec)
    if given is None or not isinstance(manifest.spec, WorkSpec):
        return ""
    before = rows_in(known.annotations.get(RESULTS, "")) if known is not None else None
    if before is not None and before.said != format_request(given):
        before = replace(before, stale=True)
    text = before.text() if before is not None else ""
    key = object_key(BATCH_JOB, given.job, manifest.namespace)
    giver = stored.resources.get(BATCH_JOB, given.job, manifest.namespace)
    if giver is None and key not in moving:
        return text
    dependency = next(it for it in needed_by(manifest.spec) if it.job == given.job)
    there = giver is not None and key not in moving
    if (
        not there
        or get_dependency_status(dependency, manifest.namespace, giver).state
        is not DependencyState.MET
    ):
        if before is not None:
            return replace(before, stale=True).text()
        return ""
    assert giver is not None
    known_of = (before.uid, before.generation) if before and not before.stale else None
    if known_of == (giver.uid, giver.generation):
        return text
    rows = collect_result_rows(giver, given, stored.runs)
    if isinstance(rows, MissingInput):
        if before is not None:
            return replace(before, stale=True).text()
        return ""
    rows = matched_rows(stored.runs, rows, known)
    same = before is not None and not before.stale and before.params == rows.params
    if same:
        return text
    return rows.text()


def results_told(resource: Resource) -> str:
    """Returns a phrase on the results that are its tasks; empty without any."""
    document = json.loads(resource.spec)
    edge = next((it for it in edges_in(document) if it.via == FROM_RESULTS), None)
    if edge is None:
        return ""
    key = object_key(edge.kind, edge.name, resource.namespace)
    rows = rows_in(resource.annotations.get(RESULTS, ""))
    if rows is None or rows.stale:
        return f"known when {key} has ended"
    return describe_results(rows.params, key)


def may_go_on(
    stored: ReadableStore,
    known: Resource,
    spec: WorkSpec,
    moving: Collection[str],
) -> bool:
    """Returns true for an object that ended because of its dependencies which do not block it for
    good any more. moving: keys of objects that get another spec in this apply.
    """
    if not ended_for_dependencies(known):
        return False
    return not any(
        object_key(it.kind, it.name, known.namespace) not in moving
        and get_dependency_status(
            it, known.namespace, _find_row(stored, it.kind, it.name, known)
        ).state
        in (DependencyState.FAILED, DependencyState.SKIPPED)
        for it in needed_by(spec)
    )


def ended_for_dependencies(resource: Resource) -> bool:
    """Returns true for an object that ended for its dependencies under its present spec."""
    if not any(f'"{it}"' in resource.status for it in (FAILED, SKIPPED, UNFIT)):
        return False
    status: Mapping[str, Any] = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    return bool(current and status.get("reason") in (FAILED, SKIPPED, UNFIT))


def revive_dependents(
    stored: ReadableStore,
    moving: set[str],
    among: Sequence[Manifest],
    options: ApplyOptions,
) -> Iterator[Change]:
    """Yields objects outside of this apply that ended for want of an applied one and may resume
    now; also the objects that ended for want of these. moving: grows by their keys.
    """
    applied = {it.key for it in among}
    ended = [
        it
        for it in (stored.resources.naming(f'"{DEPENDS_ON}"') if moving else ())
        if it.key not in applied and ended_for_dependencies(it)
    ]
    while True:
        going = [it for it in ended if it.key not in moving and _needs_one_of(it, moving)]
        going = [it for it in going if may_go_on(stored, it, _parse_work(it), moving)]
        if not going:
            return
        for row in going:
            moving.add(row.key)
            after = replace(row, generation=row.generation + 1)
            impact = impact_on(stored, after, options)
            yield Change(
                CONFIGURED,
                row,
                after,
                impact=impact,
                note=GOES_ON,
                asked_again=True,
            )


def depends_note(resource: Resource) -> str:
    """Returns a sentence on the dependencies that it waits for; empty without any."""
    edges = [it for it in edges_in(json.loads(resource.spec)) if it.via == DEPENDS_ON]
    keys = [object_key(it.kind, it.name, resource.namespace) for it in edges]
    if not keys:
        return ""
    more = len(keys) - NAMES_TOLD_MAX
    told = ", ".join(keys[:NAMES_TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"waits for {told}"


def _list_edges(row: Resource) -> Sequence[Any]:
    return edges_in(json.loads(row.spec))


def _needs_one_of(row: Resource, keys: Collection[str]) -> bool:
    return any(object_key(it.kind, it.name, row.namespace) in keys for it in _list_edges(row))


def _find_row(
    stored: ReadableStore,
    kind: str,
    name: str,
    beside: Resource,
) -> Resource | None:
    return stored.resources.get(kind, name, beside.namespace)


def _parse_work(row: Resource) -> WorkSpec:
    spec = parse_spec(row.kind, row.spec)
    assert isinstance(spec, WorkSpec)
    return spec
