"""The registry of running kinds: one line a kind."""

from __future__ import annotations

from fleetctl.controllers.kinds.batchjob import BatchJob
from fleetctl.controllers.kinds.sweep import Sweep
from fleetctl.controllers.kinds.trainingrun import TrainingRun
from fleetctl.controllers.planning.kind import KindController

CONTROLLERS: dict[str, type[KindController]] = {
    "BatchJob": BatchJob,
    "Sweep": Sweep,
    "TrainingRun": TrainingRun,
}
