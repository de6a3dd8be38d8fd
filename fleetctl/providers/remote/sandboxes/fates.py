"""What became of a sandbox, and what that makes of a run whose end record never came. Pure.

Providers make a Fate of what their service says; runs.py makes an observation of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.controllers.model import NO_CHECKPOINTS, Ended, Gone, Observation
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.rundir.journal import Journal


class Cause(StrEnum):
    """Why a sandbox is over, as far as its provider says."""

    STOPPED = "Stopped"  # we ended it
    TERMINATED = "Terminated"  # somebody else did
    PREEMPTED = "Preempted"
    OUT_OF_MEMORY = "OOMKilled"
    TIMEOUT = "ProviderTimeout"  # the provider's own limit on the sandbox's life
    QUEUE = "QueueTimeout"  # it never had a machine
    UNBEGUN = "NeverBegan"  # it lived, and nothing was heard of the work; we ended it
    FAILED = "SandboxFailed"  # the provider says that it failed, and perhaps why
    LOST = "ProviderLost"  # over for certain, and nobody says why
    UNKNOWN = "Unknown"  # the provider knows no such sandbox: perhaps not any more, perhaps not yet


_WORDS = {
    Cause.STOPPED: "the sandbox was ended",
    Cause.TERMINATED: "somebody ended the sandbox from outside",
    Cause.PREEMPTED: "the provider took the sandbox's machine away",
    Cause.OUT_OF_MEMORY: "the sandbox was killed, most likely for want of memory",
    Cause.TIMEOUT: "the provider ended the sandbox at the limit of its life",
    Cause.QUEUE: "the sandbox waited too long for a machine",
    Cause.UNBEGUN: "the work did not begin in time, so the sandbox was ended",
    Cause.FAILED: "the provider says that the sandbox failed",
    Cause.LOST: "the sandbox is over and left no end record",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """A sandbox is over. `detail` is what the provider said, for people."""

    cause: Cause
    detail: str = ""


def without_record(ref: RunRef, seen: Journal | None, fate: Fate, now_s: float) -> Observation:
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
        infrastructure=True,
        reason=fate.cause.value,
        message=message,
        exit_code=None,
        journal_offset=seen.offset if seen is not None else ref.journal_offset,
        metrics=seen.metrics if seen is not None else (),
        note=seen.note if seen is not None else "",
        gpus=seen.gpus if seen is not None else (),
        remarks=seen.remarks if seen is not None else (),
        checkpoints=seen.checkpoints if seen is not None else NO_CHECKPOINTS,
    )
