"""Who asks, and what that key may see: another's projects are as good as none."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Refused, not_logged_in, permission_denied
from ..world.state import World
from ..world.sweeps import Sweep


@dataclass(frozen=True, slots=True)
class Caller:
    """entities: that its key may see and change, the default one first; none without a key."""

    world: World
    entities: tuple[str, ...]

    def to_change(self, entity: str | None, operation: str) -> str:
        """The entity's name. Raises Refused in the words of the service."""
        if not self.entities:
            raise not_logged_in()
        name = entity or self.entities[0]
        if name in self.entities:
            return name
        if any(name in known for known in self.world.settings.keys.values()):
            raise permission_denied()
        raise Refused(404, f"entity {name} not found during {operation}")

    def sees(self, entity: str | None) -> str | None:
        """The entity's name if this key may see it."""
        name = entity or (self.entities[0] if self.entities else "")
        return name if name in self.entities else None

    def owned(self, sweep: Sweep | None) -> Sweep | None:
        return sweep if sweep is not None and sweep.entity in self.entities else None
