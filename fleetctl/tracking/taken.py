"""What work takes of a sweep's best trial (`paramsFrom`), as notes on its object. Asked by an
apply, and by the engine before a pass.
"""

from __future__ import annotations

from fleetctl.controllers.trials.winner import Winner
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.tracking.annotations import COMMAND, PARAMS


def needs_command(spec: object) -> bool:
    """Whether work that takes its parameters from a sweep runs that sweep's command."""
    if isinstance(spec, BatchJobSpec):
        return spec.params_from is not None and spec.template.work is None
    if isinstance(spec, TrainingRunSpec) and spec.params_from is not None:
        return any(spec.template_of(at).work is None for at in range(spec.count()))
    return False


def notes_of(found: Winner) -> dict[str, str]:
    """Returns the notes by annotation; none on a command where its own template has one."""
    notes = {PARAMS: canonical_json(dict(found.params))}
    return {**notes, COMMAND: canonical_json(list(found.command))} if found.command else notes
