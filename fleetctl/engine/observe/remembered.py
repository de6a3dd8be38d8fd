"""Successes that are kept for equal work: what a run had when it began, and what it must have been
for its result to be taken over. Called by records.py as runs end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind import KindController
from fleetctl.stores.base import Remembered
from fleetctl.tracking.annotations import REVISION
from fleetctl.tracking.result_cache import contents_of, fixed, success
from fleetctl.tracking.track import Work

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State


def remembered(
    state: State, work: Work, run: Run, result: str | None, latest: Mapping[str, float]
) -> Remembered | None:
    """The success of an ended run, where equal work may have it; else None."""
    begun_with = work.track.begun_with.pop(run.name, None)
    controller = work.controller
    if run.state is not RunState.SUCCEEDED or controller is None:
        return None
    unit = controller.unit(run.index)
    if unit is None:
        return None
    if (unit.params_hash, unit.template_hash) != (run.params_hash, run.template_hash):
        return None
    contents = contents_of(state.store, work, revision=_revision(state, work, run, controller))
    if contents is None:
        return None
    if fixed(controller.content(run.index)):
        contents.memo = work.contents
    elif contents.of(unit).key != begun_with:
        return None  # a volume or a Function became another while it ran
    return success(contents, unit, run, owner=work.resource.key, result=result, latest=latest)


def _revision(state: State, work: Work, run: Run, controller: KindController) -> str:
    """What the run's copy of its source was: that of the apply where one was kept; else what the
    provider took, which is not what the directory held, nor where the branch is by now.
    """
    template = controller.content(run.index)
    if template.source is None:
        return ""
    pinned = work.resource.annotations.get(REVISION, "")
    if state.sources is not None and pinned:
        return pinned
    return state.providers[run.provider].revision(run.uid, template, run.template_hash)
