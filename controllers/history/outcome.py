"""Concludes from an observation the next record of a run, if it changes. Pure; called by the engine
for every observation.
"""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.model import (
    Alive,
    CheckpointReport,
    Ended,
    Gone,
    Observation,
    Run,
    RunState,
)
from fleetctl.specs.values.hints import HintedText

# A run that was stopped for one of these speaks of a spec that is no longer there, or is not the
# whole of its work; its result is fenced off (I8).
FENCED = frozenset({"Superseded", "NoLongerWanted", "Deleted", "EarlyTerminated", "StoppedByWandb"})
MESSAGE_BYTES_MAX = 2048
# The exit code of a program that wandb interrupted because its run was stopped at W&B: the program
# may learn it before we do. Only wandb interrupts a program in a sandbox; we end it by another
# signal.
INTERRUPTED = 130
_INTERRUPTED_TEXT = "the run was stopped at W&B, and its program was the first to notice"


def conclude_run(
    run: Run,
    seen: Observation,
    *,
    settled: bool,
) -> Run | None:
    """Returns the record of a live run after `seen`; None when the observation is not conclusive.

    settled: the provider's visibility bound has passed since the last call that could have made the
    run appear, so that "gone" means gone (I12, P10).
    """
    match seen:
        case Alive():
            return _update_live(run, seen)
        case Ended():
            return _conclude_ended(run, seen)
        case Gone():
            return _conclude_gone(run, seen) if settled else None


def _update_live(run: Run, seen: Alive) -> Run | None:
    changed = replace(
        run,
        state=RunState.STOPPING if run.state is RunState.STOPPING else RunState.RUNNING,
        handle=seen.handle or run.handle,
        started_at_s=run.started_at_s if seen.started_at_s is None else seen.started_at_s,
        journal_offset=max(run.journal_offset, seen.journal_offset),
        resumed_step=_find_resumed_step(run, seen.checkpoints),
        saved_step=_find_saved_step(run, seen.checkpoints),
    )
    return changed if changed != run else None


def _conclude_ended(run: Run, seen: Ended) -> Run:
    stopping = run.state is RunState.STOPPING
    if seen.ok and not (stopping and run.reason in FENCED):
        state = RunState.SUCCEEDED
        reason = seen.reason
        message = HintedText(seen.message, seen.hint)
    elif stopping:
        state = RunState.STOPPED
        reason = run.reason
        message = HintedText(run.message, run.hint)
    elif run.wandb and seen.exit_code == INTERRUPTED:
        state = RunState.STOPPED
        reason = "StoppedByWandb"
        message = HintedText(_INTERRUPTED_TEXT)
    elif seen.infrastructure:
        state = RunState.LOST
        reason = seen.reason
        message = HintedText(seen.message, seen.hint)
    else:
        state = RunState.FAILED
        reason = seen.reason
        message = HintedText(seen.message, seen.hint)
    return replace(
        run,
        state=state,
        reason=reason,
        message=_cut_message(message.text),
        hint=message.hint,
        handle=seen.handle or run.handle,
        started_at_s=run.started_at_s if seen.started_at_s is None else seen.started_at_s,
        ended_at_s=seen.ended_at_s,
        exit_code=seen.exit_code,
        journal_offset=max(run.journal_offset, seen.journal_offset),
        sandbox_open=seen.sandbox_open,
        resumed_step=_find_resumed_step(run, seen.checkpoints),
        saved_step=_find_saved_step(run, seen.checkpoints),
    )


def _find_resumed_step(run: Run, checkpoints: CheckpointReport) -> int | None:
    if checkpoints.resumed is None:
        return run.resumed_step
    return checkpoints.resumed


def _find_saved_step(run: Run, checkpoints: CheckpointReport) -> int | None:
    """Returns the highest checkpoint that the run completed."""
    known = [one.step for one in checkpoints.saved]
    return max([*known, *([] if run.saved_step is None else [run.saved_step])], default=None)


def _conclude_gone(run: Run, seen: Gone) -> Run | None:
    if run.state is RunState.STARTING:
        # The start was never confirmed; it is requested again under the same name, so no conclusion
        # is needed.
        return None
    if run.state is RunState.STOPPING:
        return replace(
            run,
            state=RunState.STOPPED,
            ended_at_s=seen.seen_at_s,
            sandbox_open=False,
        )
    return replace(
        run,
        state=RunState.LOST,
        reason="ProviderLost",
        message="the provider no longer knows this run, and it left no end record",
        ended_at_s=seen.seen_at_s,
        sandbox_open=False,
    )


def _cut_message(message: str) -> str:
    """Returns the end of a long message: a traceback's last lines are the most useful."""
    raw = message.encode("utf-8", "replace")
    if len(raw) <= MESSAGE_BYTES_MAX:
        return message
    return "..." + raw[-(MESSAGE_BYTES_MAX - 3) :].decode("utf-8", "ignore")
