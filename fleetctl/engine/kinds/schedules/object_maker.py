"""A maker that stores the objects that a schedule requests: the same way as an apply of their
manifest.

Defined here and implemented in fleetctl/apply, which knows how a manifest becomes an object; the
daemon passes it in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleetctl.controllers.kinds.cron.schedule_decision import name_of
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.schedule import ScheduleSpec


@dataclass(frozen=True, slots=True)
class RequestedObject:
    """One object of a schedule. at_s: the moment it is for; None: requested by hand, as `name`."""

    schedule: Resource
    spec: ScheduleSpec
    at_s: float | None
    named: str = ""

    @property
    def name(self) -> str:
        return self.named or name_of(self.schedule.name, self.at_s or 0.0)


class ObjectMaker(Protocol):
    """Objects are stored inside a transaction of the caller's."""

    def asks(self, wanted: RequestedObject) -> bool:
        """Returns true if a remote service must be asked before it can be made, such as a
        repository.
        """
        ...

    async def look(self, wanted: RequestedObject) -> object:
        """Asks the remote service, outside of any transaction. Raises FleetctlError."""
        ...

    def make(
        self,
        wanted: RequestedObject,
        looked: object | None,
        now_s: float,
    ) -> Resource:
        """Stores the object, and returns its row; an existing one for this very moment is returned
        as it is. Raises FleetctlError where another object has its name, or it is refused.
        """
        ...
