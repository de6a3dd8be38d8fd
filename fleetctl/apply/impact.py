"""What storing a spec does to work: which runs go on, are replaced or cancelled, what is cached.

Called by propose.py for each object that runs work; read as the next pass reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from fleetctl.apply.draft import stored_function_content
from fleetctl.apply.request.options import Order
from fleetctl.controllers.history.attempts import outdated_of
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.controllers.reuse.cache import LOOKED_UP_MAX
from fleetctl.controllers.reuse.impact import Impact, again_of, impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import FUNCTION, pins_of
from fleetctl.tracking.kept_by import left_by
from fleetctl.tracking.load import work_of
from fleetctl.tracking.ownership import SET_PREFIX
from fleetctl.tracking.result_cache import contents_of, lookup
from fleetctl.tracking.track import Track, Work

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def fresh_impact(
    stored: Stored,
    manifest: Manifest,
    desired: Resource,
    options: Order,
    replaced: Sequence[Resource] = (),
) -> Impact | None:
    """Of an object that is not there yet. replaced: those whose place it takes."""
    make = CONTROLLERS.get(manifest.kind)
    if make is None:
        return None
    controller = make(manifest.spec, {}, pins_of(desired.annotations))
    history = History(controller.limits)
    work = Work(Track(desired, {}, manifest.spec), controller, history)
    owners = [it.uid for it in replaced]
    if options.applyset.startswith(SET_PREFIX):
        owners.append(left_by(desired.key))
    return _with_earlier(stored, work, _found(stored, work, options, owners), replaced)


def impact_on(
    stored: Stored, desired: Resource, options: Order, *, rerun: bool = False
) -> Impact | None:
    """What the next pass does to the work of `wish`; read as the pass reads it. rerun: all that
    ended is put aside first.
    """
    if not KINDS[desired.kind].runs:
        return None
    work = work_of(desired, stored.runs, rerun=rerun)
    found = _found(stored, work, options)
    return found if rerun else _with_earlier(stored, work, found, [desired])


def _found(stored: Stored, work: Work, options: Order, replaced: Sequence[str] = ()) -> Impact:
    contents = None
    if _knows_its_function(stored, work.track):
        contents = contents_of(stored, work, replaced=replaced)
    cached = lookup(contents, work.history)[0] if contents is not None else {}
    work.cached = cached
    places = work.controller.candidates
    known = [options.parallelism[name] for name in places if name in options.parallelism]
    at_once = sum(known) if known else None
    return impact(work.controller, work.history, cached=cached, parallelism=at_once)


def _with_earlier(stored: Stored, work: Work, found: Impact, rows: Sequence[Resource]) -> Impact:
    """The impact, with units that have to run and whose work one of these objects has finished
    before: under an index that another row has taken since, or as the object that goes. Equal ones
    are matched by their count.
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
    return replace(found, again=found.again + again_of(lost)) if lost else found


def _counting_no_more(stored: Stored, work: Work, row: Resource) -> Iterator[Run]:
    """Successes of an object, but for those that its units have and those that are put aside."""
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


def _has_to_run(work: Work, index: int) -> bool:
    """Not what somebody asked for by name."""
    history, tried = work.history, work.history.unfinished.get(index)
    if tried is not None and tried.forced:
        return False
    settled = history.is_done(index) or index in history.failed or index in work.cached
    return not settled and index not in history.outdated and index not in history.live_by_index


def _knows_its_function(stored: Stored, track: Track) -> bool:
    """Whether the Function that it calls is stored as it will be: what is known of another one is
    not known of this.
    """
    template = getattr(track.spec, "template", None)
    if template is None or template.function is None:
        return True
    there = stored_function_content(stored, template.function, track.resource.namespace)
    return there == track.resource.annotations.get(FUNCTION, "")
