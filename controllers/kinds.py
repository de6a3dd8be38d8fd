"""The registry of running kinds: one line a kind."""

from __future__ import annotations

from fleetctl.controllers.batchjob import BatchJob
from fleetctl.controllers.kind import KindController
from fleetctl.controllers.sweep import Sweep
from fleetctl.controllers.trainingrun import TrainingRun

CONTROLLERS: dict[str, type[KindController]] = {
    "BatchJob": BatchJob,
    "Sweep": Sweep,
    "TrainingRun": TrainingRun,
}
