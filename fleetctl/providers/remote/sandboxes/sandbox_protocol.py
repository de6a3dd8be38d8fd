"""The interface that the shared part requires from a provider, five verbs about sandboxes by id,
and the fates of sandboxes that it reports.

Implemented by each provider with remote sandboxes; called by runs/remote_runs.py and its parts. A
provider makes a Fate from its service's answer, and remote_runs.py makes an observation from the
Fate.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from fleetctl.controllers.model import NO_CHECKPOINTS, Ended, Gone, Observation
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.rundir.journal_runs import MEMORY_HINT
from fleetctl.providers.rundir.run_journal import RunJournal


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


class Cause(StrEnum):
    """The cause of a sandbox's end, as far as its provider reports."""

    STOPPED = "Stopped"  # we ended it
    TERMINATED = "Terminated"  # somebody else did
    PREEMPTED = "Preempted"
    OUT_OF_MEMORY = "OOMKilled"
    TIMEOUT = "ProviderTimeout"  # the provider's own limit on the sandbox's life
    QUEUE = "QueueTimeout"  # it never had a machine
    UNBEGUN = "NeverBegan"  # it lived, and the work was silent; we ended it
    FAILED = "SandboxFailed"  # the provider reports that it failed, and perhaps why
    LOST = "ProviderLost"  # over for certain, without any reason
    UNKNOWN = "Unknown"  # the provider knows no such sandbox: perhaps not any more, perhaps not yet


_WORDS = {
    Cause.STOPPED: "the sandbox was ended",
    Cause.TERMINATED: "the sandbox was ended from outside",
    Cause.PREEMPTED: "the provider took the sandbox's machine away",
    Cause.OUT_OF_MEMORY: "the sandbox was killed, most likely for want of memory",
    Cause.TIMEOUT: "the provider ended the sandbox at the limit of its life",
    Cause.QUEUE: "the sandbox waited too long for a machine",
    Cause.UNBEGUN: "the work did not begin in time, so the sandbox was ended",
    Cause.FAILED: "the provider reports that the sandbox failed",
    Cause.LOST: "the sandbox has ended and left no end record",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """The end of a sandbox. detail: the provider's words, for messages. own: whether it ended
    because of its work, so that another machine of the same size would end it too; exit_code: where
    that is known.
    """

    cause: Cause
    detail: str = ""
    own: bool = False
    exit_code: int | None = None


def without_record(
    ref: RunRef,
    seen: RunJournal | None,
    fate: Fate,
    now_s: float,
) -> Observation:
    """The observation of a run whose sandbox is over and whose journal has no end."""
    if fate.cause is Cause.UNKNOWN:
        return Gone(ref.run, now_s)
    message = f"{_WORDS[fate.cause]}: {fate.detail}" if fate.detail else _WORDS[fate.cause]
    return Ended(
        run=ref.run,
        handle=ref.handle,
        started_at_s=seen.started_at_s if seen is not None else None,
        ended_at_s=now_s,
        ok=False,
        infrastructure=not fate.own,
        reason=fate.cause.value,
        message=message,
        hint=MEMORY_HINT if fate.cause is Cause.OUT_OF_MEMORY else "",
        exit_code=fate.exit_code,
        journal_offset=seen.offset if seen is not None else ref.journal_offset,
        metrics=seen.metrics if seen is not None else (),
        note=seen.note if seen is not None else "",
        gpus=seen.gpus if seen is not None else (),
        remarks=seen.remarks if seen is not None else (),
        checkpoints=seen.checkpoints if seen is not None else NO_CHECKPOINTS,
    )
