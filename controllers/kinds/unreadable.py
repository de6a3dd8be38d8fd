"""What is left of a deleted object whose spec cannot be read: it wants nothing, and can still go.

Used by the engine in place of a kind's own controller. What is the same for all kinds then stops
its runs, frees what they left and drops the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retries.retry import Limits
from fleetctl.controllers.planning.kind import KindController, Policy, Unit, Verdict
from fleetctl.controllers.planning.placement import Placement
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.specs.content import NO_PINS, Pins

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template

NONE: Mapping[str, int] = {}
GRACE_S = 10.0  # the default of terminationGracePeriodSeconds


class Unreadable(KindController):
    """No unit is wanted."""

    def __init__(
        self,
        spec: object = None,  # noqa: ARG002
        allocated: Mapping[str, int] = NONE,  # noqa: ARG002
        pins: Pins = NO_PINS,  # noqa: ARG002
    ) -> None:
        self.policy = Policy(
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
        self.limits = Limits()
        self.template_hash = ""
        self.contents = ()
        self.total = 0
        self.unit = lambda index: None  # noqa: ARG005

    @staticmethod
    def contents_of(spec: object, pins: Pins) -> tuple[str, ...]:  # noqa: ARG004
        return ()

    def template(self, index: int) -> Template:
        raise AssertionError(f"unit {index} is not wanted and has no template")

    def next(self, history: History) -> Iterator[Unit]:  # noqa: ARG002
        return iter(())

    def verdict(self, history: History) -> Verdict | None:  # noqa: ARG002
        return None
