"""What an observation makes of a run: the next record of it, or none. Pure; called by the engine
for every observation.
"""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.model import Alive, Checkpoints, Ended, Gone, Observation, Run, RunState

# A run that was stopped for one of these speaks of a spec that is no longer there, or is not the
# whole of its work; its result is fenced off (I8).
FENCED = frozenset({"Superseded", "NoLongerWanted", "Deleted", "EarlyTerminated", "StoppedByWandb"})
MESSAGE_BYTES_MAX = 2048
# Of a program that wandb has interrupted because its run was stopped at W&B: it may hear of that
# before we do. Nobody else interrupts what runs in a sandbox; we end it by another signal.
INTERRUPTED = 130
_INTERRUPTED_TEXT = "the run was stopped at W&B, which its program heard first"


def outcome(run: Run, seen: Observation, *, settled: bool) -> Run | None:
    """The record of a live run after `seen`; None when nothing is to be concluded.

    settled: the provider's visibility bound has passed since the last call that could have made the
    run
    appear, so that "gone" means gone (I12, P10).
    """
    match seen:
        case Alive():
            return _alive(run, seen)
        case Ended():
            return _ended(run, seen)
        case Gone():
            return _gone(run, seen) if settled else None


def _alive(run: Run, seen: Alive) -> Run | None:
    changed = replace(
        run,
        state=RunState.STOPPING if run.state is RunState.STOPPING else RunState.RUNNING,
        handle=seen.handle or run.handle,
        started_at_s=run.started_at_s if seen.started_at_s is None else seen.started_at_s,
        journal_offset=max(run.journal_offset, seen.journal_offset),
        resumed_step=_resumed(run, seen.checkpoints),
        saved_step=_saved(run, seen.checkpoints),
    )
    return changed if changed != run else None


def _ended(run: Run, seen: Ended) -> Run:
    stopping = run.state is RunState.STOPPING
    if seen.ok and not (stopping and run.reason in FENCED):
        state, reason, message = RunState.SUCCEEDED, seen.reason, seen.message
    elif stopping:
        state, reason, message = RunState.STOPPED, run.reason, run.message
    elif run.wandb and seen.exit_code == INTERRUPTED:
        state, reason, message = RunState.STOPPED, "StoppedByWandb", _INTERRUPTED_TEXT
    elif seen.infrastructure:
        state, reason, message = RunState.LOST, seen.reason, seen.message
    else:
        state, reason, message = RunState.FAILED, seen.reason, seen.message
    return replace(
        run,
        state=state,
        reason=reason,
        message=_cut(message),
        handle=seen.handle or run.handle,
        started_at_s=run.started_at_s if seen.started_at_s is None else seen.started_at_s,
        ended_at_s=seen.ended_at_s,
        exit_code=seen.exit_code,
        journal_offset=max(run.journal_offset, seen.journal_offset),
        sandbox_open=seen.sandbox_open,
        resumed_step=_resumed(run, seen.checkpoints),
        saved_step=_saved(run, seen.checkpoints),
    )


def _resumed(run: Run, checkpoints: Checkpoints) -> int | None:
    return run.resumed_step if checkpoints.resumed is None else checkpoints.resumed


def _saved(run: Run, checkpoints: Checkpoints) -> int | None:
    """The highest of all that it completed."""
    known = [one.step for one in checkpoints.saved]
    return max([*known, *([] if run.saved_step is None else [run.saved_step])], default=None)


def _gone(run: Run, seen: Gone) -> Run | None:
    if run.state is RunState.STARTING:
        # Nothing confirmed the start; it is asked for again under the same name, so no conclusion
        # is needed.
        return None
    if run.state is RunState.STOPPING:
        return replace(run, state=RunState.STOPPED, ended_at_s=seen.seen_at_s, sandbox_open=False)
    return replace(
        run,
        state=RunState.LOST,
        reason="ProviderLost",
        message="the provider no longer knows this run, and it left no end record",
        ended_at_s=seen.seen_at_s,
        sandbox_open=False,
    )


def _cut(message: str) -> str:
    """The end of a long message: a traceback's last lines say most."""
    raw = message.encode("utf-8", "replace")
    if len(raw) <= MESSAGE_BYTES_MAX:
        return message
    return "..." + raw[-(MESSAGE_BYTES_MAX - 3) :].decode("utf-8", "ignore")
