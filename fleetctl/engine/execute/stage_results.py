"""Collects the results of earlier stages for a stage. Called by the executor for a start of an
object whose units build upon each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.specs.kinds.trainingrun import STAGE

if TYPE_CHECKING:
    from fleetctl.stores.base import RunStore
    from fleetctl.tracking.track import ResourceWork

VARIABLE = "FLEETCTL_STAGE_RESULTS"
# For all results together. Linux allows 128 KiB for one variable.
RESULTS_BYTES_MAX = 64 * 1024


def stage_variables(
    work: ResourceWork,
    runs: RunStore,
    index: int,
) -> Mapping[str, str]:
    """Returns `{"data": {...}}` as JSON, by the names of earlier stages; null for a stage without a
    result, and for a result that is too large beside the earlier ones. Empty for the first stage.
    """
    controller = work.controller
    history = work.history
    if not controller.in_order or index == controller.first:
        return {}
    results = {run.index: text for run, text in runs.of(work.resource.uid) if text is not None}
    fields: dict[str, object] = {}
    left = RESULTS_BYTES_MAX
    for earlier in controller.indexes():
        unit = controller.unit(earlier)
        if earlier == index or unit is None:
            break
        text = results.get(earlier, "") if earlier in history.succeeded else ""
        fits = 0 < len(text.encode()) <= left
        left -= len(text.encode()) if fits else 0
        fields[str(unit.params[STAGE])] = json.loads(text) if fits else None
    return {VARIABLE: json.dumps(fields)}
