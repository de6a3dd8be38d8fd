"""The interface that the shared part requires from a provider: five verbs about sandboxes by their
handle.

Implemented by each provider with remote sandboxes; called by runs/remote_runs.py and its parts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.providers.remote.sandboxes.fates import Fate


@dataclass(frozen=True, slots=True)
class RunWork:
    """The order that a stream hands to the guest so that the run begins, if it has not begun
    before.

    secrets: names and values for the environment of the guest's `attach`; nowhere else.
    """

    order: Mapping[str, object]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """Offsets in bytes from which a stream goes on. services: of their logs, as far as any is known
    here; outputs: of what is kept of the run's files.
    """

    journal: int
    log: int
    services: Mapping[str, int] = field(default_factory=dict)
    outputs: int = 0

    def words(self) -> list[str]:
        """Returns the arguments of the guest's `attach`."""
        words = ["--journal", str(self.journal), "--log", str(self.log)]
        words += ["--outputs", str(self.outputs)] if self.outputs else []
        told = ",".join(f"{name}={offset}" for name, offset in sorted(self.services.items()))
        if told:
            return [*words, "--services", told]
        return words


class Sandboxes(Protocol):
    """Every verb has its own deadline, raises Unavailable when the answer is unknown, and may be
    called again.
    """

    def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the guest's frames. With `work` the run begins if it has not begun before.

        Raises SandboxOver when the sandbox is gone.
        """
        ...

    async def fate(self, handle: str) -> Fate | None:
        """Returns the sandbox's fate; None while it lives or may come to live."""
        ...

    async def end(self, handle: str) -> None:
        """Ends it, whatever it does, and returns once that is confirmed. No error when it is
        over.
        """
        ...

    async def ask_stop(
        self,
        handle: str,
        run: str,
        grace_s: float,
    ) -> None:
        """Lets the guest end a run in its own time; returns once asked."""
        ...

    async def find(self, run: str) -> str | None:
        """Returns the handle of the sandbox that carries our tags for this run, or None."""
        ...
