"""The effect of an apply on work: which runs continue, are replaced or cancelled once a spec is
stored, and which objects wait for others or end because of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from fleetctl.apply.change import CONFIGURED, Change
from fleetctl.apply.draft import stored_function_content
from fleetctl.apply.request import ApplyOptions
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
    find_requested_results,
    needed_by,
)
from fleetctl.controllers.depends.results import UNFIT, format_request, rows_in
from fleetctl.controllers.history.attempts import outdated_of
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.registry import choose_controller
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.controllers.reuse.content_keys import LOOKED_UP_MAX
from fleetctl.controllers.reuse.impact import Impact, estimate_impact, estimate_repeat
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import FUNCTION, RESULTS, pins_of
from fleetctl.tracking.by_hand import SET_PREFIX
from fleetctl.tracking.kept_by import name_left_owner
from fleetctl.tracking.load import work_of
from fleetctl.tracking.result_cache import (
    collect_result_rows,
    contents_of,
    describe_results,
    find_cached,
    matched_rows,
)
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


GOES_ON = "its dependencies may end differently now"
NAMES_TOLD_MAX = 3


def fresh_impact(
    stored: ReadableStore,
    manifest: Manifest,
    desired: Resource,
    options: ApplyOptions,
    replaced: Sequence[Resource] = (),
) -> Impact | None:
    """Returns the impact of an object that is not stored yet. replaced: the objects that it
    replaces."""
    make = choose_controller(manifest.kind, manifest.spec)
    if make is None:
        return None
    controller = make(manifest.spec, {}, pins_of(desired.annotations))
    history = History(controller.limits)
    work = ResourceWork(Track(desired, {}, manifest.spec), controller, history)
    owners = [it.uid for it in replaced]
    if options.applyset.startswith(SET_PREFIX):
        owners.append(name_left_owner(desired.key))
    return _with_earlier(stored, work, _find_impact(stored, work, options, owners), replaced)


def impact_on(
    stored: ReadableStore,
    desired: Resource,
    options: ApplyOptions,
    *,
    rerun: bool = False,
) -> Impact | None:
    """Returns the effect of the next pass on the work of `desired`; read as the pass reads it.
    rerun: every ended run is put aside first.
    """
    if not KINDS[desired.kind].runs:
        return None
    work = work_of(desired, stored.runs, rerun=rerun)
    found = _find_impact(stored, work, options)
    if rerun:
        return found
    return _with_earlier(stored, work, found, [desired])


def _find_impact(
    stored: ReadableStore,
    work: ResourceWork,
    options: ApplyOptions,
    replaced: Sequence[str] = (),
) -> Impact:
    contents = None
    if _knows_its_function(stored, work.track):
        contents = contents_of(stored, work, replaced=replaced)
    cached = find_cached(contents, work.history)[0] if contents is not None else {}
    work.cached = cached
    places = work.controller.candidates
    known = [options.parallelism[name] for name in places if name in options.parallelism]
    at_once = sum(known) if known else None
    return estimate_impact(work.controller, work.history, cached=cached, parallelism=at_once)


def _with_earlier(
    stored: ReadableStore,
    work: ResourceWork,
    found: Impact,
    rows: Sequence[Resource],
) -> Impact:
    """Returns the impact with units that must run although one of these objects finished their work
    earlier: under an index that another row has since, or as the object that is deleted. Equal
    units are matched by their count.
    """
    done: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for row in () if found.over else rows:
        for run in _counting_no_more(stored, work, row):
            done[run.params_hash, run.content].append(run)
    lost = []
    for index in islice(work.controller.indexes(), LOOKED_UP_MAX) if done else ():
        unit = work.controller.unit(index) if _has_to_run(work, index) else None
        before = done.get((unit.params_hash, unit.content)) if unit is not None else None
        if before:
            lost.append(outdated_of(before.pop()))
    if lost:
        return replace(found, again=found.again + estimate_repeat(lost))
    return found


def _counting_no_more(
    stored: ReadableStore,
    work: ResourceWork,
    row: Resource,
) -> Iterator[Run]:
    """Yields the successes of an object, except those of its present units and those put aside."""
    newest: dict[int, Run] = {}
    for run, _ in stored.runs.of(row.uid):
        if (older := newest.get(run.index)) is not None and _is_success(older):
            yield older
        newest[run.index] = run
    own = row.uid == work.resource.uid
    for run in newest.values():
        if _is_success(run) and not (own and run.index in work.history.succeeded):
            yield run


def _is_success(run: Run) -> bool:
    return run.state is RunState.SUCCEEDED and not run.put_aside


def _has_to_run(work: ResourceWork, index: int) -> bool:
    """Returns true for a unit that has to run and that the user did not request by name."""
    history, tried = work.history, work.history.unfinished.get(index)
    if tried is not None and tried.forced:
        return False
    settled = history.is_done(index) or index in history.failed or index in work.cached
    return not settled and index not in history.outdated and index not in history.live_by_index


def _knows_its_function(stored: ReadableStore, track: Track) -> bool:
    """Returns true where the Function that it calls is stored as it will be: results of another
    version do not hold for this one.
    """
    template = getattr(track.spec, "template", None)
    if template is None or template.function is None:
        return True
    there = stored_function_content(stored, template.function, track.resource.namespace)
    return there == track.resource.annotations.get(FUNCTION, "")


def sort_manifests(manifests: Sequence[Manifest]) -> list[Manifest]:
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
    if not has_ended_for_dependencies(known):
        return False
    return not any(
        object_key(it.kind, it.name, known.namespace) not in moving
        and get_dependency_status(
            it, known.namespace, _find_row(stored, it.kind, it.name, known)
        ).state
        in (DependencyState.FAILED, DependencyState.SKIPPED)
        for it in needed_by(spec)
    )


def has_ended_for_dependencies(resource: Resource) -> bool:
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
        if it.key not in applied and has_ended_for_dependencies(it)
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
