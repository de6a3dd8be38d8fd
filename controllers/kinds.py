"""The registry of running kinds: one line a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controllers.batchjob import BatchJob
from controllers.kind import Controller
from controllers.sweep import Sweep
from controllers.trainingrun import TrainingRun

Make = Callable[[Any, Mapping[str, int]], Controller]

# kind -> (spec, {params hash: index} of what has runs already) -> controller
CONTROLLERS: dict[str, Make] = {
    "BatchJob": lambda spec, allocated: BatchJob(spec),  # noqa: ARG005
    "Sweep": Sweep,
    "TrainingRun": lambda spec, allocated: TrainingRun(spec),  # noqa: ARG005
}
