"""Decides if work that waits for other objects may begin: called before each pass, and recorded
once it has begun. Called by passes.py, inside a tick's transaction.

Work that has begun goes on, even if its dependencies change: its note is durable with its first
run. The note holds for one content of the work; changed work is judged again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Conflict
from fleetctl.controllers.depends.dependency_status import (
    DependencyState,
    DependencyStatus,
    find_blocker,
    list_dependency_statuses,
)
from fleetctl.controllers.depends.edges import find_requested_results, release_key
from fleetctl.controllers.depends.results import format_request, rows_in
from fleetctl.controllers.kinds.registry import choose_controller
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Plan, Reuse, Start
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.depends import Dependency
from fleetctl.tracking.annotations import RELEASED, RERUN, RESULTS, pins_of
from fleetctl.tracking.result_cache import collect_result_rows, describe_results, matched_rows
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState as Shared

BATCH_JOB = "BatchJob"


@dataclass(frozen=True, slots=True)
class DependencyCheck:
    """lacking: why none of its units may begin; None where it may. found: the status of each
    dependency; for work that has begun, as it was then.
    """

    found: tuple[DependencyStatus, ...] = ()
    lacking: MissingInput | None = None
    begun: bool = True


NOTHING = DependencyCheck()
_CHANGED = MissingInput("its spec has just changed")


class Dependencies:
    """read: reads an object's spec and rows again."""

    def __init__(self, state: Shared, *, read: Callable[[Track], ResourceWork | None]) -> None:
        self._state = state
        self._read = read

    def ask(
        self, work: ResourceWork, needed: Sequence[Dependency]
    ) -> tuple[ResourceWork, DependencyCheck]:
        """Decides from the rows as they are now. The work has other tasks from then on where
        results were taken. needed: its dependencies.
        """
        spec = work.track.spec
        over = work.track.dormant or work.resource.deleted_at_s is not None
        if not isinstance(spec, WorkSpec) or over:
            return work, NOTHING
        if (begun := _read_release(work)) is not None:
            return work, DependencyCheck(begun)
        namespace = work.resource.namespace
        found = list_dependency_statuses(
            needed, namespace, lambda kind, name: self._row(kind, name, namespace)
        )
        lacking = find_blocker(found, spec.on_dependency_failed)
        if lacking is None:
            work, lacking = self._take(work)
        return work, DependencyCheck(tuple(found), lacking, begun=False)

    def _row(
        self,
        kind: str,
        name: str,
        namespace: str,
    ) -> Resource | None:
        return self._state.store.resources.get(kind, name, namespace)

    def _take(self, work: ResourceWork) -> tuple[ResourceWork, MissingInput | None]:
        """Takes its tasks from the results of another job, which has finished; once for each of
        that job's specs.
        """
        given = find_requested_results(work.track.spec)
        resource = work.resource
        if given is None:
            return work, None
        giver = self._row(BATCH_JOB, given.job, resource.namespace)
        assert giver is not None, f"the giver of {resource.key} has ended, and is not there"
        known = rows_in(resource.annotations.get(RESULTS, ""))
        if known is not None and not known.stale:
            of = (known.uid, known.generation, known.said)
            if of == (giver.uid, giver.generation, format_request(given)):
                return work, None
        rows = collect_result_rows(giver, given, self._state.store.runs)
        if isinstance(rows, MissingInput):
            return work, rows
        rows = matched_rows(self._state.store.runs, rows, resource)
        if not self._annotate(work.track, RESULTS, rows.text()):
            return work, _CHANGED
        self._state.say(resource.uid, "ResultsTaken", describe_results(rows.params, giver.key))
        return self._read(work.track) or work, None

    def note(
        self,
        work: ResourceWork,
        asked: DependencyCheck,
        plan: Plan,
    ) -> bool:
        """Records that work has begun that had not, before its first run is written. False where
        its spec was written in between: then the plan must not be carried out.
        """
        if not any(isinstance(action, Start | Reuse) for action in plan.actions):
            return True
        assert asked.lacking is None, f"{work.resource.key} begins, and waits for others"
        by = {
            it.key: {"condition": it.condition, "generation": it.generation} for it in asked.found
        }
        text = json.dumps({"work": _compute_key(work), "by": by}, separators=(",", ":"))
        if not self._annotate(work.track, RELEASED, text):
            return False
        reasons = ", ".join(f"{it.key} {it.why}" for it in asked.found)
        self._state.say(work.resource.uid, "Released", reasons)
        return True

    def _annotate(
        self,
        track: Track,
        name: str,
        text: str,
    ) -> bool:
        """Stores an annotation. False where a spec was written in between; the next tick takes that
        in.
        """
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


def _read_release(work: ResourceWork) -> tuple[DependencyStatus, ...] | None:
    """Returns the dependencies by which the present work was released; None where it was not."""
    text = work.resource.annotations.get(RELEASED)
    note = json.loads(text) if text else {}
    if not note or note["work"] != _compute_key(work):
        return None
    return tuple(
        DependencyStatus(key, it["condition"], DependencyState.MET, generation=it["generation"])
        for key, it in note["by"].items()
    )


def _compute_key(work: ResourceWork) -> str:
    """Returns the key, computed once a reading: for many units it takes a while."""
    if not work.release_key:
        spec = work.track.spec
        resource = work.resource
        assert isinstance(spec, WorkSpec)
        notes = resource.annotations
        controller = choose_controller(resource.kind, spec)
        assert controller is not None, f"{resource.key} runs no work"
        contents = controller.contents_of(spec, pins_of(notes))
        said = (notes.get(RERUN, ""), notes.get(RESULTS, ""))
        work.release_key = release_key(resource.kind, spec, contents, said)
    return work.release_key
