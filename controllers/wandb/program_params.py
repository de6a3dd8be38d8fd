"""Defines the settings for a program that calls `wandb.init` for its parameters, in a trial or in
work with the parameters of the best trial. Pure; called by kinds, and by the engine as it makes an
order.

The rest, which only the sandbox knows, is in fleetctl/guest/wandb/trial.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.retries.retry_limits import (
    FailureAction,
    FailureRule,
    RetryLimits,
)
from fleetctl.controllers.model import Run, WandbTrial

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import ParamsFrom
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.search.config import Search

PARAMETERS_UNREAD = "ParametersUnread"
READ_THEM = (
    "read the parameters from `wandb.config`, or hand them over with `${args}` in `search.command`;"
    " a program that reads $TASK_NAME or $FLEETCTL_PARAMS by itself goes into `template.command`"
)
# Matches a command that passes parameters on: all parameters, or the variables and the file of a
# trial.
HANDS_OVER = re.compile(r"\$\{args(_\w+)?\}|TASK_|FLEETCTL_PARAMS")
# Matches a program in Python: its interpreter, or a .py file.
_PYTHON = re.compile(r"""(^|[\s/;&|("'])python[\d.]*($|[\s"'])|\.py($|[\s"';&|)])""")


def wandb_trial(
    name: str,
    search: Search,
    command: Sequence[str],
) -> WandbTrial:
    """name: of the sweep's object."""
    handed_over = any(map(HANDS_OVER.search, command)) or not search.parameters
    return WandbTrial(
        name,
        search.project or "",
        search.entity or "",
        only=not handed_over,
        metric=search.metric.name if search.metric is not None else "",
    )


def winner_wandb(params_from: ParamsFrom | None, template: Template) -> WandbTrial | None:
    """Returns the link for work that takes the parameters of a sweep's best trial: its program may
    be the sweep's. A command that passes no parameters on may run with values of its own, so those
    are compared.
    """
    if params_from is None:
        return None
    words = [*(template.command or ()), template.script or ""]
    return WandbTrial(
        "",
        "",
        "",
        only=False,
        compares=not any(map(HANDS_OVER.search, words)),
    )


def observe_template(template: Template, wandb: WandbTrial | None) -> Template:
    """Returns the template of a run, with a flag if its image must have Python to read what its
    program logs to wandb: where wandb alone can pass the parameters on, and where the program is in
    Python anyway. Without it a trial would silently run with defaults of its own.
    """
    if wandb is None:
        return template
    words = " ".join([*(template.command or ()), template.script or ""])
    needed = wandb.only or _PYTHON.search(words) is not None
    if needed:
        return template.observed()
    return template


def stopped_by_unread(limits: RetryLimits) -> RetryLimits:
    """Returns the same limits, but the first trial whose program never read its parameters ends the
    whole sweep: each of the others would run with the program's own defaults too.
    """
    rule = FailureRule("", FailureAction.FAIL_JOB, reasons=frozenset({PARAMETERS_UNREAD}))
    return replace(limits, rules=(rule, *limits.rules))


def describe_unread(run: Run) -> str:
    """Returns the message of a sweep that ends because no program read a trial's parameters."""
    return f"trial {run.index}: {run.message}"
