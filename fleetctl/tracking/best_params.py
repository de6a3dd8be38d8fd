"""The values that work takes from a sweep's best trial (`paramsFrom`), as annotations on its
object. Read by an apply, and by the engine before a pass.
"""

from __future__ import annotations

from fleetctl.controllers.trials.winner import SweepWinner
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.tracking.annotations import COMMAND, PARAMS


def needs_command(spec: object) -> bool:
    """Returns true where work with a sweep's parameters runs that sweep's command."""
    if isinstance(spec, BatchJobSpec):
        return spec.params_from is not None and spec.template.work is None
    if isinstance(spec, TrainingRunSpec) and spec.params_from is not None:
        return any(spec.template_of(at).work is None for at in range(spec.count()))
    return False


def notes_of(found: SweepWinner) -> dict[str, str]:
    """Returns the notes by annotation; without a command where its own template has one."""
    notes = {PARAMS: canonical_json(dict(found.params))}
    if found.command:
        return {**notes, COMMAND: canonical_json(list(found.command))}
    return notes
