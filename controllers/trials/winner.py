"""Finds the best trial of a sweep, for work that takes its parameters, and answers for a sweep
whose trials W&B chooses. Pure.

If no trial qualifies, returns the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Resource, Run, WandbTrial
from fleetctl.controllers.planning.kind_controller import ObjectVerdict, StopNow
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.trials.command import DEFAULT_COMMAND, command_line
from fleetctl.controllers.wandb import (
    CANCELED,
    CANCELED_BY_WANDB,
    PAUSED,
    PAUSED_BY_WANDB,
    STOPPED_BY_WANDB,
    SWEEP_GONE,
    AssignedRuns,
    names_of,
    wandb_trial,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.specs.blocks.common import ParamsFrom
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.content import Pins
    from fleetctl.specs.kinds.sweep import SweepSpec


SWEEP = "Sweep"
# Reasons of an object that takes its parameters from a sweep.
AWAITS_BEST = "AwaitsBest"
NO_BEST = "NoBest"
PARAMS_CHARS_MAX = 120
_MACRO = re.compile(r"\$\{")
WORK_FIELDS = ("python", "command", "script", "function")

AWAITS_WANDB = "AwaitsWandb"


@dataclass(frozen=True, slots=True)
class MissingInput:
    """A reason why the best trial is not known. for_good: the trial stays unknown until the sweep
    changes. reason: one CamelCase word, for the status of an object that waits for the trial or
    ends without it. skips: an object that ends without it is skipped, not failed. hint: what users
    can do about it.
    """

    message: str
    for_good: bool = False
    reason: str = AWAITS_BEST
    skips: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SweepWinner:
    """The parameters of a sweep's best trial, and the sweep's own command with W&B's macros; empty
    where its template has the command, or it is not needed.
    """

    params: Mapping[str, object]
    command: tuple[str, ...] = ()


def winner_of(
    sweep: Resource | None,
    name: str,
    *,
    needs_command: bool = False,
) -> SweepWinner | MissingInput:
    """Returns the best trial of a finished sweep; a failed sweep may have one too. needs_command:
    the work has no command of its own.
    """
    key = f"sweep/{name}"
    spec = json.loads(sweep.spec) if sweep is not None else {}
    if sweep is not None and (unfit := unfit_search(spec)):
        return MissingInput(f"{key} {unfit}", for_good=True, reason=NO_BEST)
    command = command_of(spec) if needs_command else ()
    if sweep is not None and needs_command and not command:
        hint = "write what to run in `template`: `python`, `command` or `script`"
        text = f"{key} has no `program` or `command` in its search"
        return MissingInput(text, for_good=True, reason=NO_BEST, hint=hint)
    status = read_ended_status(sweep, name, "whose best trial it takes", AWAITS_BEST)
    if isinstance(status, MissingInput):
        return status
    best = status.get("best")
    if best is None:
        why = status.get("message") or "no trial reported its metric"
        hint = f"fix and apply {key}, then apply this again"
        text = f"{key} ended without a best trial: {why}"
        return MissingInput(text, for_good=True, reason=NO_BEST, hint=hint)
    return SweepWinner(best["params"], command)


def command_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the command of a stored sweep, with `${args}` and its like not yet expanded; empty
    where its template has the command.
    """
    search = spec.get("search") or {}
    template = spec.get("template") or {}
    program = str(search.get("program") or "")
    if any(template.get(it) for it in WORK_FIELDS) or not (program or search.get("command")):
        return ()
    words = search.get("command") or DEFAULT_COMMAND
    return tuple(program if word == "${program}" else word for word in words)


def with_sweeps_command(
    template: Template,
    params_from: ParamsFrom | None,
    pins: Pins,
) -> Template:
    """Returns the template with the command of the sweep that it takes its parameters from, where
    it has no work of its own and that command is known.
    """
    if params_from is None or template.work is not None or not pins.command:
        return template
    return template.model_copy(update={"command": tuple(json.loads(pins.command))})


def with_arguments(template: Template, params: Mapping[str, Any]) -> Template:
    """Returns the template of a unit that takes its parameters from a sweep: with W&B's macros in
    its command expanded.
    """
    if not any(map(_MACRO.search, template.command or ())):
        return template
    argv = command_line(template.command, None, params, template.env)
    return template.model_copy(update={"command": tuple(argv)})


def read_ended_status(
    sweep: Resource | None,
    name: str,
    whose: str,
    reason: str,
) -> Mapping[str, Any] | MissingInput:
    """Returns the status of a sweep that has finished under its present spec. whose: the thing that
    is waited for, as the rest of a sentence.
    """
    key = f"sweep/{name}"
    if sweep is None or sweep.deleted_at_s is not None:
        hint = f"apply a `kind: Sweep` with the name `{name}`"
        return MissingInput(f"there is no {key}, {whose}", reason=reason, hint=hint)
    status: dict[str, Any] = json.loads(sweep.status or "{}")
    look = f"it goes on by itself then; `fleetctl describe {key}` shows how far that is"
    if status.get("observedGeneration") != sweep.generation:
        return MissingInput(f"{key} has not begun, {whose}", reason=reason, hint=look)
    if status.get("phase") not in TERMINAL_PHASES:
        text = f"{key} has not ended, {whose}: {_describe_progress(status)}"
        hint = f"fleetctl resume {key}" if status.get("phase") == "Suspended" else look
        return MissingInput(text, reason=reason, hint=hint)
    return status


def unfit_search(spec: Mapping[str, Any]) -> str:
    """Returns why a sweep with this stored spec never has a best trial, as the rest of a sentence;
    or an empty text.
    """
    if spec.get("metrics"):
        return "has several metrics, so none of its trials is the best"
    if spec.get("search", {}).get("metric") is None:
        return "has no `metric`, so none of its trials is the best"
    return ""


def params_text(params: Mapping[str, object]) -> str:
    """Formats parameters for a line of text: `lr=0.01 optimizer="adam"`."""
    words = [f"{name}={json.dumps(value)}" for name, value in params.items()]
    text = " ".join(words)
    if len(text) <= PARAMS_CHARS_MAX:
        return text
    return f"{text[: PARAMS_CHARS_MAX - 3]}..."


def _describe_progress(status: Mapping[str, Any]) -> str:
    if status.get("phase") == "Suspended":
        return "it is suspended"
    done = status.get("succeeded", 0) + status.get("stopped", 0)
    total = status.get("total")
    if total:
        return f"{done:,} of {total:,} trials are done"
    return f"{done:,} trials are done"


def judge_wandb_stop(handed: AssignedRuns | None, run: Run) -> StopNow | None:
    """Returns why a live trial should stop now, permanently."""
    if handed is None or not handed.is_stopped(run.index):
        return None
    return StopNow(STOPPED_BY_WANDB, "the run was stopped at W&B")


def judge_wandb_end(handed: AssignedRuns, history: History) -> ObjectVerdict | None:
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


def explain_unreachable(handed: AssignedRuns) -> MissingInput | None:
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


def link_trial(
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
