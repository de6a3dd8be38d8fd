"""Who stores the objects that a schedule asks for: the same way as an apply of their manifest.

Stated here and written in fleetctl/apply, which knows what a manifest makes of an object; the
daemon hands it in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleetctl.controllers.kinds.cron.decide import name_of
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.schedule import ScheduleSpec


@dataclass(frozen=True, slots=True)
class Wanted:
    """One object of a schedule. at_s: the moment it is for; None: asked for by hand, as `name`."""

    schedule: Resource
    spec: ScheduleSpec
    at_s: float | None
    named: str = ""

    @property
    def name(self) -> str:
        return self.named or name_of(self.schedule.name, self.at_s or 0.0)


class Maker(Protocol):
    """Objects are stored inside a transaction of the caller's."""

    def asks(self, wanted: Wanted) -> bool:
        """Whether somebody must be asked before it can be made, such as a repository."""
        ...

    async def look(self, wanted: Wanted) -> object:
        """Ask, outside of any transaction. Raises FleetctlError."""
        ...

    def make(self, wanted: Wanted, looked: object | None, now_s: float) -> Resource:
        """Store it, and answer its row; one that is there for this very moment is answered as it
        is. Raises FleetctlError where another object has its name, or it is refused.
        """
        ...
