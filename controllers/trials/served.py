"""What the kind of a sweep answers while its trials are W&B's: when it is over, what it waits for,
and what ties a trial's program to its run. Pure; called by sweep.py and by the engine before a
pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run, WandbTrial
from fleetctl.controllers.planning.kind import StopNow, Verdict
from fleetctl.controllers.trials.winner import Lacking
from fleetctl.controllers.wandb.handed import (
    CANCELED,
    CANCELED_BY_WANDB,
    PAUSED,
    PAUSED_BY_WANDB,
    STOPPED_BY_WANDB,
    SWEEP_GONE,
    Handed,
    names_of,
)
from fleetctl.controllers.wandb.program import wandb_trial
from fleetctl.specs.values.hints import with_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.specs.kinds.sweep import SweepSpec

AWAITS_WANDB = "AwaitsWandb"


def stopped_there(handed: Handed | None, run: Run) -> StopNow | None:
    """Why a live trial is to stop now, for good."""
    if handed is None or not handed.is_stopped(run.index):
        return None
    return StopNow(STOPPED_BY_WANDB, "the run was stopped at W&B")


def ended_there(handed: Handed, history: History) -> Verdict | None:
    """The sweep is over at W&B for a reason of its own; None where its trials say how it ended."""
    report = handed.report
    if report.state == CANCELED:
        return Verdict(False, CANCELED_BY_WANDB, "the sweep was cancelled at W&B")
    if report.gone:
        return Verdict(False, SWEEP_GONE, report.gone, waits_for_live=True)
    if handed.over and not history.taken and next(handed.next(history), None) is None:
        return Verdict(True, "Completed", "W&B handed out no run")
    return None


def all_ended(handed: Handed, history: History) -> bool:
    """W&B hands out no more, and every trial is over: what runs may end by itself, and what the
    infrastructure lost is run again.
    """
    alive = any(not handed.is_stopped(index) for index in history.unfinished)
    return handed.over and not alive and next(handed.next(history), None) is None


def lacking_of(handed: Handed) -> Lacking | None:
    """Why nothing more begins, for people; None while W&B is asked and answers."""
    report = handed.report
    if report.trouble is not None:
        reason, message = report.trouble
        return Lacking(message, reason=reason)
    if report.home is None:
        return Lacking("W&B is being asked for the sweep", reason=AWAITS_WANDB)
    if report.state == PAUSED:
        text = with_hint("the sweep is paused at W&B", f"resume it on its page, {report.home.url}")
        return Lacking(text, reason=PAUSED_BY_WANDB)
    return None


def handed_trial(
    spec: SweepSpec, handed: Handed, index: int, command: Sequence[str] | None
) -> WandbTrial | None:
    """What ties the program of a trial to the run that W&B has handed out. command: the search's
    own; None where the template has another.
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
