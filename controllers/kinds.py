"""The registry of running kinds: one line a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fleetctl.controllers import batchjob, sweep, trainingrun
from fleetctl.controllers.batchjob import BatchJob
from fleetctl.controllers.kind import Controller
from fleetctl.controllers.sweep import Sweep
from fleetctl.controllers.trainingrun import TrainingRun
from fleetctl.specs.content import NO_PINS, Pins


class Make(Protocol):
    def __call__(
        self, spec: Any, allocated: Mapping[str, int], pins: Pins = NO_PINS, /
    ) -> Controller: ...


class Contents(Protocol):
    def __call__(self, spec: Any, pins: Pins, /) -> tuple[str, ...]: ...


# kind -> (spec, pins) -> Controller.contents, without the rest of a controller
CONTENTS: dict[str, Contents] = {
    "BatchJob": batchjob.contents,
    "Sweep": sweep.contents,
    "TrainingRun": trainingrun.contents,
}
# kind -> (spec, {params hash: index} of what has runs already, what its names stand for)
CONTROLLERS: dict[str, Make] = {
    "BatchJob": lambda spec, allocated, pins=NO_PINS: BatchJob(spec, pins),  # noqa: ARG005
    "Sweep": Sweep,
    "TrainingRun": lambda spec, allocated, pins=NO_PINS: TrainingRun(spec, pins),  # noqa: ARG005
}
