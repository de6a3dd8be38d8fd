"""The effect of a stored spec on work: which runs continue, are replaced or cancelled, which units
are cached.

Called by propose.py for each object that runs work; read as the next pass reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from fleetctl.apply.draft import stored_function_content
from fleetctl.apply.request.options import ApplyOptions
from fleetctl.controllers.history.attempts import outdated_of
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.controllers.reuse.content_keys import LOOKED_UP_MAX
from fleetctl.controllers.reuse.impact import Impact, again_of, estimate_impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import FUNCTION, pins_of
from fleetctl.tracking.kept_by import left_by
from fleetctl.tracking.load import work_of
from fleetctl.tracking.ownership import SET_PREFIX
from fleetctl.tracking.result_cache import contents_of, find_cached
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def fresh_impact(
    stored: ReadableStore,
    manifest: Manifest,
    desired: Resource,
    options: ApplyOptions,
    replaced: Sequence[Resource] = (),
) -> Impact | None:
    """Returns the impact of an object that is not stored yet. replaced: the objects that it
    replaces."""
    make = CONTROLLERS.get(manifest.kind)
    if make is None:
        return None
    controller = make(manifest.spec, {}, pins_of(desired.annotations))
    history = History(controller.limits)
    work = ResourceWork(Track(desired, {}, manifest.spec), controller, history)
    owners = [it.uid for it in replaced]
    if options.applyset.startswith(SET_PREFIX):
        owners.append(left_by(desired.key))
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
        return replace(found, again=found.again + again_of(lost))
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
