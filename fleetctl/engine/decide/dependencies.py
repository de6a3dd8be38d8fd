"""Work that waits for other objects: asked before each pass whether it may begin, and noted once it
has begun. Called by passes.py, inside a tick's transaction.

What has begun goes on, whatever becomes of its dependencies: the note that says so is durable with
its first run. It speaks of one content of the work; changed work is judged anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Conflict
from fleetctl.controllers.depends.needed import needed_by, results_wanted
from fleetctl.controllers.depends.released import release_key
from fleetctl.controllers.depends.results import rows_in, said_of
from fleetctl.controllers.depends.standing import Standing, State, blocked, standings
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Plan, Reuse, Start
from fleetctl.controllers.trials.winner import Lacking
from fleetctl.specs.blocks.common import Execution
from fleetctl.tracking.annotations import RELEASED, RERUN, RESULTS, pins_of
from fleetctl.tracking.results import rows_taken, told
from fleetctl.tracking.row_indexes import matched_rows
from fleetctl.tracking.track import Track, Work

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State as Shared

BATCH_JOB = "BatchJob"


@dataclass(frozen=True, slots=True)
class Asked:
    """lacking: why nothing of it may begin; None where it may. found: where each dependency stands;
    of work that has begun, as it was then.
    """

    found: tuple[Standing, ...] = ()
    lacking: Lacking | None = None
    begun: bool = True


NOTHING = Asked()
_CHANGED = Lacking("its spec has just changed")


class Dependencies:
    """read: reads an object's spec and rows anew."""

    def __init__(self, state: Shared, *, read: Callable[[Track], Work | None]) -> None:
        self._state, self._read = state, read

    def ask(self, work: Work) -> tuple[Work, Asked]:
        """From the rows as they are now; of work that depends on nothing none is read. The work has
        other tasks from then on where results were taken.
        """
        spec = work.track.spec
        needed = needed_by(spec) if isinstance(spec, Execution) else ()
        over = work.track.dormant or work.resource.deleted_at_s is not None
        if not needed or not isinstance(spec, Execution) or over:
            return work, NOTHING
        if (begun := _begun(work)) is not None:
            return work, Asked(begun)
        namespace = work.resource.namespace
        found = standings(needed, namespace, lambda kind, name: self._row(kind, name, namespace))
        lacking = blocked(found, spec.on_dependency_failed)
        if lacking is None:
            work, lacking = self._take(work)
        return work, Asked(tuple(found), lacking, begun=False)

    def _row(self, kind: str, name: str, namespace: str) -> Resource | None:
        return self._state.store.resources.get(kind, name, namespace)

    def _take(self, work: Work) -> tuple[Work, Lacking | None]:
        """Its tasks of the results of another job, which is over; once for each spec of that."""
        given, resource = results_wanted(work.track.spec), work.resource
        if given is None:
            return work, None
        giver = self._row(BATCH_JOB, given.job, resource.namespace)
        assert giver is not None, f"the giver of {resource.key} is over, and not there"
        known = rows_in(resource.annotations.get(RESULTS, ""))
        if known is not None and not known.stale:
            of = (known.uid, known.generation, known.said)
            if of == (giver.uid, giver.generation, said_of(given)):
                return work, None
        rows = rows_taken(giver, given, self._state.store.runs)
        if isinstance(rows, Lacking):
            return work, rows
        rows = matched_rows(self._state.store.runs, rows, resource)
        if not self._annotate(work.track, RESULTS, rows.text()):
            return work, _CHANGED
        self._state.say(resource.uid, "ResultsTaken", told(rows.params, giver.key))
        return self._read(work.track) or work, None

    def note(self, work: Work, asked: Asked, plan: Plan) -> bool:
        """Before the first run of this work is written, that it has begun. False where its spec was
        written in between: nothing of the plan may be done then.
        """
        begins = any(isinstance(action, Start | Reuse) for action in plan.actions)
        if asked.begun or not begins:
            return True
        assert asked.lacking is None, f"{work.resource.key} begins, and waits for others"
        by = {
            it.key: {"condition": it.condition, "generation": it.generation} for it in asked.found
        }
        text = json.dumps({"work": _key(work), "by": by}, separators=(",", ":"))
        if not self._annotate(work.track, RELEASED, text):
            return False
        reasons = ", ".join(f"{it.key} {it.why}" for it in asked.found)
        self._state.say(work.resource.uid, "Released", reasons)
        return True

    def _annotate(self, track: Track, name: str, text: str) -> bool:
        """False where somebody has written a spec in between; the next tick takes that in."""
        resource = track.resource
        again = replace(resource, annotations={**resource.annotations, name: text})
        try:
            track.resource = self._state.store.resources.put(
                again, expected_version=resource.version
            )
        except Conflict:
            self._state.queue.add(resource.uid)
            return False
        return True


def _begun(work: Work) -> tuple[Standing, ...] | None:
    """The dependencies by which the present work was released; None where it was not."""
    text = work.resource.annotations.get(RELEASED)
    note = json.loads(text) if text else {}
    if not note or note["work"] != _key(work):
        return None
    return tuple(
        Standing(key, it["condition"], State.MET, generation=it["generation"])
        for key, it in note["by"].items()
    )


def _key(work: Work) -> str:
    """Worked out once a reading: of many units it takes a while."""
    if not work.release_key:
        spec, resource = work.track.spec, work.resource
        assert isinstance(spec, Execution)
        notes = resource.annotations
        contents = CONTROLLERS[resource.kind].contents_of(spec, pins_of(notes))
        said = (notes.get(RERUN, ""), notes.get(RESULTS, ""))
        work.release_key = release_key(resource.kind, spec, contents, said)
    return work.release_key
