"""Answers for a sweep whose trials W&B chooses: when it has finished, why it waits, and which
fields link a trial's program to its W&B run. Pure; called by sweep.py and by the engine before a
pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run, WandbTrial
from fleetctl.controllers.planning.kind_controller import ObjectVerdict, StopNow
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.controllers.wandb.assigned_runs import (
    CANCELED,
    CANCELED_BY_WANDB,
    PAUSED,
    PAUSED_BY_WANDB,
    STOPPED_BY_WANDB,
    SWEEP_GONE,
    AssignedRuns,
    names_of,
)
from fleetctl.controllers.wandb.program_params import wandb_trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.specs.kinds.sweep import SweepSpec

AWAITS_WANDB = "AwaitsWandb"


def stopped_there(handed: AssignedRuns | None, run: Run) -> StopNow | None:
    """Returns why a live trial should stop now, permanently."""
    if handed is None or not handed.is_stopped(run.index):
        return None
    return StopNow(STOPPED_BY_WANDB, "the run was stopped at W&B")


def ended_there(handed: AssignedRuns, history: History) -> ObjectVerdict | None:
    """Returns the verdict of a sweep that W&B ended for a reason of its own; None where its trials
    decide how it ended.
    """
    report = handed.report
    if report.state == CANCELED:
        return ObjectVerdict(False, CANCELED_BY_WANDB, "the sweep was cancelled at W&B")
    if report.gone:
        gone = report.gone
        return ObjectVerdict(False, SWEEP_GONE, gone.text, waits_for_live=True, hint=gone.hint)
    if handed.over and not history.taken and next(handed.next(history), None) is None:
        return ObjectVerdict(True, "Completed", "W&B handed out no run")
    return None


def all_ended(handed: AssignedRuns, history: History) -> bool:
    """Returns true if W&B assigns no more runs and every trial has finished: running programs may
    end by themselves, and a run that the infrastructure lost is run again.
    """
    alive = any(not handed.is_stopped(index) for index in history.unfinished)
    return handed.over and not alive and next(handed.next(history), None) is None


def lacking_of(handed: AssignedRuns) -> MissingInput | None:
    """Returns why no more trials begin, for users; None while W&B is reachable and replies."""
    report = handed.report
    if report.trouble is not None:
        reason, message = report.trouble
        return MissingInput(message.text, reason=reason, hint=message.hint)
    if report.home is None:
        return MissingInput("W&B is being asked for the sweep", reason=AWAITS_WANDB)
    if report.state == PAUSED:
        hint = f"resume it on its page, {report.home.url}"
        return MissingInput("the sweep is paused at W&B", reason=PAUSED_BY_WANDB, hint=hint)
    return None


def handed_trial(
    spec: SweepSpec,
    handed: AssignedRuns,
    index: int,
    command: Sequence[str] | None,
) -> WandbTrial | None:
    """Returns the link between the program of a trial and the run that W&B assigned. command: the
    search's own; None where the template has another.
    """
    home = handed.report.home
    if home is None:
        return None
    return replace(
        wandb_trial(home.id, spec.search, command or ("${args}",)),
        project=home.project,
        entity=home.entity,
        run_id=handed.run_ids.get(index, ""),
        base_url=names_of(spec)[2],
    )
