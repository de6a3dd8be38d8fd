"""The registry of running kinds, one line a kind, and the controller for a deleted object whose
spec cannot be read: it desires no runs.

The code that is the same for all kinds then stops its runs, frees their assets and drops the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import RetryLimits
from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.kinds.traininggroups import TrainingGroupsController
from fleetctl.controllers.kinds.trainingrun import TrainingRunController
from fleetctl.controllers.planning.kind_controller import (
    KindController,
    ObjectVerdict,
    RunPolicy,
    Unit,
)
from fleetctl.controllers.planning.placement import Placement
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.specs.content import NO_PINS, Pins

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template


CONTROLLERS: dict[str, type[KindController]] = {
    "BatchJob": BatchJobController,
    "Sweep": SweepController,
    "TrainingRun": TrainingRunController,
}


def choose_controller(kind: str, spec: object) -> type[KindController] | None:
    """Returns the controller of a running kind for this spec; None for another kind."""
    if getattr(spec, "groups", ()):
        return TrainingGroupsController
    return CONTROLLERS.get(kind)


NONE: Mapping[str, int] = {}
GRACE_S = 10.0  # the default of terminationGracePeriodSeconds


class UnreadableController(KindController):
    """No unit is wanted."""

    def __init__(
        self,
        spec: object = None,
        allocated: Mapping[str, int] = NONE,
        pins: Pins = NO_PINS,
    ) -> None:
        self.policy = RunPolicy(
            parallelism=0,
            suspend=False,
            active_deadline_s=None,
            ttl_s=None,
            reuse=1,
            sandbox_life_s=None,
            task_s=None,
            rollout=Rollout.REPLACE,
            placement=Placement(()),
            grace_s=GRACE_S,
        )
        self.limits = RetryLimits()
        self.template_hash = ""
        self.contents = ()
        self.total = 0
        self.unit = lambda index: None  # noqa: ARG005

    @staticmethod
    def contents_of(spec: object, pins: Pins) -> tuple[str, ...]:  # noqa: ARG004
        return ()

    def template(self, index: int) -> Template:
        raise AssertionError(f"unit {index} is not wanted and has no template")

    def next(self, history: History) -> Iterator[Unit]:
        return iter(())

    def verdict(self, history: History) -> ObjectVerdict | None:
        return None
