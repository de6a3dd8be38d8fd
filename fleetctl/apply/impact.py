"""What storing a spec does to work: which runs go on, are replaced or cancelled, what is cached.

Called by propose.py for each object that runs work; read as the next pass reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
from fleetctl.controllers.reuse.impact import Again, Impact, again_of, impact
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
    found = _found(stored, work, options, owners)
    return replace(found, again=_done_before(stored, work, replaced)) if replaced else found


def impact_on(
    stored: Stored, desired: Resource, options: Order, *, rerun: bool = False
) -> Impact | None:
    """What the next pass does to the work of `wish`; read as the pass reads it. rerun: all that
    ended is put aside first.
    """
    if not KINDS[desired.kind].runs:
        return None
    return _found(stored, work_of(desired, stored.runs, rerun=rerun), options)


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


def _done_before(stored: Stored, work: Work, replaced: Sequence[Resource]) -> Again:
    """Finished units of the objects whose place it takes that it can only do again; equal ones by
    their count.
    """
    done: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for row in replaced:
        newest = {run.index: run for run, _ in stored.runs.of(row.uid)}
        for run in newest.values():
            if run.state is RunState.SUCCEEDED and not run.put_aside:
                done[run.params_hash, run.content].append(run)
    lost = []
    for index in islice(work.controller.indexes(), LOOKED_UP_MAX):
        unit = work.controller.unit(index)
        before = done.get((unit.params_hash, unit.content)) if unit is not None else None
        if before:
            run = before.pop()
            if index not in work.cached:
                lost.append(outdated_of(run))
    return again_of(lost)


def _knows_its_function(stored: Stored, track: Track) -> bool:
    """Whether the Function that it calls is stored as it will be: what is known of another one is
    not known of this.
    """
    template = getattr(track.spec, "template", None)
    if template is None or template.function is None:
        return True
    there = stored_function_content(stored, template.function, track.resource.namespace)
    return there == track.resource.annotations.get(FUNCTION, "")
