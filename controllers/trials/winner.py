"""The best trial of a sweep, for work that takes its parameters (`paramsFrom`); or why there is
none. Pure; asked by the engine before a pass and by an apply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.trials.command import DEFAULT_COMMAND, command_line
from fleetctl.specs.values.hints import with_hint

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import ParamsFrom
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.content import Pins

SWEEP = "Sweep"
# Reasons of an object that takes its parameters from a sweep.
AWAITS_BEST, NO_BEST = "AwaitsBest", "NoBest"
PARAMS_CHARS_MAX = 120
_MACRO = re.compile(r"\$\{")
WORK_FIELDS = ("python", "command", "script", "function")


@dataclass(frozen=True, slots=True)
class Lacking:
    """What is not known yet. for_good: and will not be while the sweep stays as it is. reason: one
    CamelCase word, of an object that waits for it, or that ends for want of it. skips: such an end
    is no failure.
    """

    message: str
    for_good: bool = False
    reason: str = AWAITS_BEST
    skips: bool = False


@dataclass(frozen=True, slots=True)
class Winner:
    """The parameters of a sweep's best trial, and the sweep's own command with W&B's macros; empty
    where its template says what runs, or nobody needs it.
    """

    params: Mapping[str, object]
    command: tuple[str, ...] = ()


def winner_of(
    sweep: Resource | None, name: str, *, needs_command: bool = False
) -> Winner | Lacking:
    """The best trial of a sweep that is over; one that failed may have one too. needs_command: of
    work that has none of its own.
    """
    key = f"sweep/{name}"
    spec = json.loads(sweep.spec) if sweep is not None else {}
    if sweep is not None and (unfit := unfit_search(spec)):
        return Lacking(f"{key} {unfit}", for_good=True, reason=NO_BEST)
    command = command_of(spec) if needs_command else ()
    if sweep is not None and needs_command and not command:
        hint = "say what to run in `template`: `python`, `command` or `script`"
        text = with_hint(f"{key} has no `program` or `command` in its search", hint)
        return Lacking(text, for_good=True, reason=NO_BEST)
    status = ended(sweep, name, "whose best trial it takes", AWAITS_BEST)
    if isinstance(status, Lacking):
        return status
    best = status.get("best")
    if best is None:
        why = status.get("message") or "no trial reported its metric"
        hint = f"mend and apply {key}, then apply this again"
        text = with_hint(f"{key} ended without a best trial: {why}", hint)
        return Lacking(text, for_good=True, reason=NO_BEST)
    return Winner(best["params"], command)


def command_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The command of a stored sweep, of which `${args}` and its like are still to be put in; empty
    where its template says what runs.
    """
    search, template = spec.get("search") or {}, spec.get("template") or {}
    program = str(search.get("program") or "")
    if any(template.get(it) for it in WORK_FIELDS) or not (program or search.get("command")):
        return ()
    words = search.get("command") or DEFAULT_COMMAND
    return tuple(program if word == "${program}" else word for word in words)


def with_sweeps_command(template: Template, params_from: ParamsFrom | None, pins: Pins) -> Template:
    """The template with the command of the sweep that it takes its parameters from, where it has no
    work of its own and that command is known.
    """
    if params_from is None or template.work is not None or not pins.command:
        return template
    return template.model_copy(update={"command": tuple(json.loads(pins.command))})


def with_arguments(template: Template, params: Mapping[str, Any]) -> Template:
    """The template of one unit that takes its parameters from a sweep: with W&B's macros in its
    command expanded.
    """
    if not any(map(_MACRO.search, template.command or ())):
        return template
    argv = command_line(template.command, None, params, template.env)
    return template.model_copy(update={"command": tuple(argv)})


def ended(
    sweep: Resource | None, name: str, whose: str, reason: str
) -> Mapping[str, Any] | Lacking:
    """The status of a sweep that is over under its present spec. whose: what is waited for, as the
    rest of a sentence.
    """
    key = f"sweep/{name}"
    if sweep is None or sweep.deleted_at_s is not None:
        hint = f"apply a `kind: Sweep` with the name `{name}`"
        return Lacking(with_hint(f"there is no {key}, {whose}", hint), reason=reason)
    status: dict[str, Any] = json.loads(sweep.status or "{}")
    look = f"it goes on by itself then; `fleetctl describe {key}` shows how far that is"
    if status.get("observedGeneration") != sweep.generation:
        return Lacking(with_hint(f"{key} has not begun, {whose}", look), reason=reason)
    if status.get("phase") not in TERMINAL_PHASES:
        text = f"{key} is not over, {whose}: {_progress(status)}"
        hint = f"fleetctl resume {key}" if status.get("phase") == "Suspended" else look
        return Lacking(with_hint(text, hint), reason=reason)
    return status


def unfit_search(spec: Mapping[str, Any]) -> str:
    """Why a sweep with this stored spec never has a best trial, as the rest of a sentence; or
    nothing.
    """
    if spec.get("metrics"):
        return "has several metrics, so none of its trials is the best"
    if spec.get("search", {}).get("metric") is None:
        return "has no `metric`, so none of its trials is the best"
    return ""


def params_text(params: Mapping[str, object]) -> str:
    """`lr=0.01 optimizer="adam"`, for a line of text."""
    words = [f"{name}={json.dumps(value)}" for name, value in params.items()]
    text = " ".join(words)
    return text if len(text) <= PARAMS_CHARS_MAX else f"{text[: PARAMS_CHARS_MAX - 3]}..."


def _progress(status: Mapping[str, Any]) -> str:
    if status.get("phase") == "Suspended":
        return "it is suspended"
    done, total = status.get("succeeded", 0) + status.get("stopped", 0), status.get("total")
    return f"{done:,} of {total:,} trials are done" if total else f"{done:,} trials are done"
