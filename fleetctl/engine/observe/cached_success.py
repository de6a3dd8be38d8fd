"""Stores successes for reuse by equal work: the content of a run when it began, and the content
required for its result to be taken over. Called by records.py as runs end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import KindController
from fleetctl.stores.base import CachedSuccess
from fleetctl.tracking.annotations import REVISION
from fleetctl.tracking.result_cache import contents_of, is_fixed, remember_success
from fleetctl.tracking.track import ResourceWork

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState


def build_cached_success(
    state: EngineState,
    work: ResourceWork,
    run: Run,
    result: str | None,
    latest: Mapping[str, float],
) -> CachedSuccess | None:
    """Returns the success of an ended run, where equal work may reuse it; else None."""
    begun_with = work.track.begun_with.pop(run.name, None)
    controller = work.controller
    if run.state is not RunState.SUCCEEDED or controller is None:
        return None
    unit = controller.unit(run.index)
    if unit is None:
        return None
    if (unit.params_hash, unit.template_hash) != (run.params_hash, run.template_hash):
        return None
    contents = contents_of(state.store, work, revision=_find_revision(state, work, run, controller))
    if contents is None:
        return None
    if is_fixed(controller.content(run.index)):
        contents.memo = work.contents
    elif contents.of(unit).key != begun_with:
        return None  # a volume or a Function became another while it ran
    return remember_success(
        contents,
        unit,
        run,
        owner=work.resource.key,
        result=result,
        latest=latest,
    )


def _find_revision(
    state: EngineState,
    work: ResourceWork,
    run: Run,
    controller: KindController,
) -> str:
    """Returns the revision of the run's copy of its source: that of the apply where one was kept;
    else the provider's, which may differ from the directory then and from the branch now.
    """
    template = controller.content(run.index)
    if template.source is None:
        return ""
    pinned = work.resource.annotations.get(REVISION, "")
    if state.sources is not None and pinned:
        return pinned
    return state.providers[run.provider].revision(run.uid, template, run.template_hash)
