"""The registry of running kinds: one line a kind."""

from __future__ import annotations

from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.kinds.trainingrun import TrainingRunController
from fleetctl.controllers.planning.kind_controller import KindController

CONTROLLERS: dict[str, type[KindController]] = {
    "BatchJob": BatchJobController,
    "Sweep": SweepController,
    "TrainingRun": TrainingRunController,
}
