"""Work that waits for other objects: asked before each pass whether it may begin, and noted once it
has begun. Called by passes.py, inside a tick's transaction.

What has begun goes on, whatever becomes of its dependencies: the note that says so is durable with
its first run. It speaks of one content of the work; changed work is judged anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Conflict
from fleetctl.controllers.depends.released import release_key
from fleetctl.controllers.depends.standing import Standing, State, blocked, standings
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.planning.plan import Plan, Reuse, Start
from fleetctl.controllers.trials.winner import Lacking
from fleetctl.specs.blocks.common import Execution
from fleetctl.tracking.annotations import RELEASED, RERUN, pins_of
from fleetctl.tracking.track import Work

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State as Shared


@dataclass(frozen=True, slots=True)
class Asked:
    """lacking: why nothing of it may begin; None where it may. found: where each dependency stands;
    of work that has begun, as it was then.
    """

    found: tuple[Standing, ...] = ()
    lacking: Lacking | None = None
    begun: bool = True


NOTHING = Asked()


class Dependencies:
    def __init__(self, state: Shared) -> None:
        self._state = state

    def ask(self, work: Work) -> Asked:
        """From the rows as they are now; of work without `dependsOn` nothing is read."""
        spec, resource = work.track.spec, work.resource
        if not isinstance(spec, Execution) or not spec.depends_on:
            return NOTHING
        if (begun := _begun(work)) is not None:
            return Asked(begun)
        resources = self._state.store.resources
        found = standings(
            spec.depends_on,
            resource.namespace,
            lambda kind, name: resources.get(kind, name, resource.namespace),
        )
        return Asked(tuple(found), blocked(found, spec.on_dependency_failed), begun=False)

    def note(self, work: Work, asked: Asked, plan: Plan) -> bool:
        """Before the first run of this work is written, that it has begun. False where its spec was
        written in between: nothing of the plan may be done then.
        """
        begins = any(isinstance(action, Start | Reuse) for action in plan.actions)
        if asked.begun or not begins:
            return True
        track, resource = work.track, work.resource
        assert asked.lacking is None, f"{resource.key} begins, and waits for others"
        by = {
            it.key: {"condition": it.condition, "generation": it.generation} for it in asked.found
        }
        text = json.dumps({"work": _key(work), "by": by}, separators=(",", ":"))
        again = replace(resource, annotations={**resource.annotations, RELEASED: text})
        try:
            track.resource = self._state.store.resources.put(
                again, expected_version=resource.version
            )
        except Conflict:
            self._state.queue.add(resource.uid)  # the next tick takes the new spec in
            return False
        told = ", ".join(f"{it.key} {it.why}" for it in asked.found)
        self._state.say(resource.uid, "Released", told)
        return True


def _begun(work: Work) -> tuple[Standing, ...] | None:
    """The dependencies by which the present work was released; None where it was not."""
    note = json.loads(work.resource.annotations.get(RELEASED, "{}"))
    if note.get("work") != _key(work):
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
        work.release_key = release_key(resource.kind, spec, contents, notes.get(RERUN, ""))
    return work.release_key
