"""What storing a spec does to work: which runs go on, are replaced or cancelled, what is cached.

Called by propose.py for each object that runs work; read as the next pass reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.apply.draft import stored_function_content
from fleetctl.apply.request.options import Order
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.reuse.impact import Impact, impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import FUNCTION, pins_of
from fleetctl.tracking.load import work_of
from fleetctl.tracking.result_cache import contents_of, lookup
from fleetctl.tracking.track import Track, Work

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def fresh_impact(
    stored: Stored, manifest: Manifest, desired: Resource, options: Order
) -> Impact | None:
    """Of an object that is not there yet."""
    make = CONTROLLERS.get(manifest.kind)
    if make is None:
        return None
    controller = make(manifest.spec, {}, pins_of(desired.annotations))
    history = History(controller.limits)
    return _found(stored, Work(Track(desired, {}, manifest.spec), controller, history), options)


def impact_on(
    stored: Stored, desired: Resource, options: Order, *, rerun: bool = False
) -> Impact | None:
    """What the next pass does to the work of `wish`; read as the pass reads it. rerun: all that
    ended is put aside first.
    """
    if not KINDS[desired.kind].runs:
        return None
    return _found(stored, work_of(desired, stored.runs, rerun=rerun), options)


def _found(stored: Stored, work: Work, options: Order) -> Impact:
    contents = contents_of(stored, work) if _knows_its_function(stored, work.track) else None
    cached = lookup(contents, work.history)[0] if contents is not None else {}
    places = work.controller.candidates
    known = [options.parallelism[name] for name in places if name in options.parallelism]
    at_once = sum(known) if known else None
    return impact(work.controller, work.history, cached=cached, parallelism=at_once)


def _knows_its_function(stored: Stored, track: Track) -> bool:
    """Whether the Function that it calls is stored as it will be: what is known of another one is
    not known of this.
    """
    template = getattr(track.spec, "template", None)
    if template is None or template.function is None:
        return True
    there = stored_function_content(stored, template.function, track.resource.namespace)
    return there == track.resource.annotations.get(FUNCTION, "")
