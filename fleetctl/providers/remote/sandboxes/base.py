"""What the shared part asks of a provider: five verbs about sandboxes by their handle.

Implemented by each provider with remote sandboxes; called by runs/runs.py and what it owns.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.providers.remote.sandboxes.fates import Fate


@dataclass(frozen=True, slots=True)
class Work:
    """What a stream hands to the guest so that the run begins, if it has not begun before.

    secrets: names and values for the environment of the guest's `attach`; nowhere else.
    """

    order: Mapping[str, object]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class At:
    """Offsets in bytes from which a stream goes on. services: of their logs, as far as any is known
    here.
    """

    journal: int
    log: int
    services: Mapping[str, int] = field(default_factory=dict)

    def words(self) -> list[str]:
        """As the guest's `attach` takes them."""
        words = ["--journal", str(self.journal), "--log", str(self.log)]
        told = ",".join(f"{name}={offset}" for name, offset in sorted(self.services.items()))
        return [*words, "--services", told] if told else words


class Sandboxes(Protocol):
    """Every verb has its own deadline, raises Unavailable when nothing is known, and may be asked
    again.
    """

    def stream(
        self, handle: str, run: str, work: Work | None, at: At
    ) -> AsyncGenerator[bytes, None]:
        """The guest's frames. With `work` the run begins if nobody began it before.

        Raises SandboxOver when the sandbox is gone.
        """
        ...

    async def fate(self, handle: str) -> Fate | None:
        """What became of it; None while it lives or may come to live."""
        ...

    async def end(self, handle: str) -> None:
        """End it, whatever it does, and return once that is confirmed. No error when it is over."""
        ...

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        """Let the guest end a run in its own time; returns once asked."""
        ...

    async def find(self, run: str) -> str | None:
        """The handle of the sandbox that carries our tags for this run; None when there is none."""
        ...
