"""Fates of sandboxes, and the observation of a run whose end record never came. Pure.

Providers make a Fate from their service's answer; remote_runs.py makes an observation from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.controllers.model import NO_CHECKPOINTS, Ended, Gone, Observation
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.rundir.run_journal import RunJournal


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
        exit_code=fate.exit_code,
        journal_offset=seen.offset if seen is not None else ref.journal_offset,
        metrics=seen.metrics if seen is not None else (),
        note=seen.note if seen is not None else "",
        gpus=seen.gpus if seen is not None else (),
        remarks=seen.remarks if seen is not None else (),
        checkpoints=seen.checkpoints if seen is not None else NO_CHECKPOINTS,
    )
