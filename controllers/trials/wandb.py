"""What a trial tells a program that asks `wandb.init` for its parameters. Pure; called by sweep.py.

The rest, which only the sandbox knows, is in fleetctl/guest/wandbtrial.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.retry import FailureAction, FailureRule, Limits
from fleetctl.specs.values.hints import with_hint

if TYPE_CHECKING:
    from fleetctl.controllers.model import Run
    from fleetctl.specs.search.config import Search

PARAMETERS_UNREAD = "ParametersUnread"
# What hands parameters over in a command: all of them, or the variables and the file of a trial.
_HANDS_OVER = re.compile(r"\$\{args(_\w+)?\}|TASK_|FLEETCTL_PARAMS")


@dataclass(frozen=True, slots=True)
class WandbTrial:
    """only: nothing in the command hands over its parameters, so `wandb.init` has to; metric: that
    the search compares, of which every value is recorded, or "".
    """

    sweep_id: str
    project: str
    entity: str
    only: bool
    metric: str = ""

    def order(self) -> dict[str, object]:
        """As the guest reads it; in capitals the variables that it sets, WANDB_ before them."""
        return {
            "SWEEP_ID": self.sweep_id,
            "PROJECT": self.project,
            "ENTITY": self.entity,
            "only": self.only,
            "metric": self.metric,
        }


def wandb_trial(name: str, search: Search, command: Sequence[str]) -> WandbTrial:
    """name: of the sweep's object."""
    handed_over = any(map(_HANDS_OVER.search, command)) or not search.parameters
    return WandbTrial(
        name,
        search.project or "",
        search.entity or "",
        only=not handed_over,
        metric=search.metric.name if search.metric is not None else "",
    )


def stopped_by_unread(limits: Limits) -> Limits:
    """The same, but the first trial whose parameters reached nobody ends the whole: each of the
    others would run with the program's own defaults too.
    """
    rule = FailureRule("", FailureAction.FAIL_JOB, reasons=frozenset({PARAMETERS_UNREAD}))
    return replace(limits, rules=(rule, *limits.rules))


def unread(run: Run) -> str:
    """The message of a sweep that ends because a trial's parameters reached nobody."""
    return with_hint(
        f"trial {run.index}: {run.message}",
        "read the parameters from `wandb.config`, or hand them over with `${args}` in"
        " `search.command`; a program that reads $TASK_NAME or $FLEETCTL_PARAMS by itself goes"
        " into `template.command`",
    )
