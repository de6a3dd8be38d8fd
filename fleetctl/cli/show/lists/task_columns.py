"""The columns of tables of tasks and attempts: a header and one row a thing. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.common.text import (
    escape_line,
    format_age,
    format_assignments,
    format_duration,
    format_hinted,
    format_money,
    shorten_text,
)
from fleetctl.views.columns import last_line
from fleetctl.views.objects import NONE, View, parse_document
from fleetctl.views.sections.assets import WHY_CHARS_MAX
from fleetctl.views.task_files import FILE, FileNames, file_cell
from fleetctl.views.tasks import Task, task_usd

TASK_HEADER = ("INDEX", "STATUS", "REASON", "ATTEMPTS", "PROVIDER", "STARTED", "DURATION")
ATTEMPT_HEADER = ("INDEX", "ATTEMPT", "STATUS", "REASON", "PROVIDER", "STARTED", "DURATION")
RUN_COST = ("COST",)
UNWANTED = "NoLongerWanted"  # as an attempt is stopped for that
RUN_WIDE = ("EXIT", "RUN", "PARAMS", "MESSAGE", "WHY THERE")
RUN_AT_WANDB = ("W&B RUN",)


class TaskColumns(NamedTuple):
    """The columns of a list of tasks. attempts: a line for every run. cost: where the work has cost
    anything. named: the unit's word where each has a name, which is its parameter, or FILE where
    each has files. at_wandb: where
    each is a run at W&B.
    """

    wide: bool = False
    attempts: bool = False
    cost: bool = False
    named: str = ""
    at_wandb: bool = False

    @classmethod
    def of(
        cls,
        seen: View,
        *,
        wide: bool,
        attempts: bool,
    ) -> TaskColumns:
        actual = seen.map("cost").get("actual")
        cost = isinstance(actual, (int, float)) and actual > 0 and not attempts
        named = seen.kind.unit if seen.kind.named else ""
        named = FILE if FileNames.of(seen) is not None else named
        return cls(
            wide,
            attempts,
            cost or wide,
            named,
            wide and bool(seen.map("wandb")),
        )

    @property
    def header(self) -> tuple[str, ...]:
        index, *rest = ATTEMPT_HEADER if self.attempts else TASK_HEADER
        named = (index, *((self.named.upper(),) if self.named else ()), *rest)
        wide = (*RUN_WIDE, *(RUN_AT_WANDB if self.at_wandb else ())) if self.wide else ()
        return (*named, *(RUN_COST if self.cost else ()), *wide)


def task_row(
    task: Task,
    now_s: float,
    columns: TaskColumns,
) -> list[str]:
    """Returns one line of `get tasks`, or of `get attempts`."""
    run, (wide, attempts, cost, named, at_wandb) = task.run, columns
    middle = [
        escape_line(task.shown),
        (escape_line(task.reason) if task.wanted else UNWANTED) or NONE,
    ]
    params = parse_document(run.params)
    called = file_cell(params) if named == FILE else str(params.get(named) or "")
    name = [escape_line(called) or NONE] if named else []
    row = [str(run.index), *name, *(
        [str(run.attempt), *middle] if attempts else [*middle, str(task.attempts)]
    ), escape_line(run.provider) or NONE]  # fmt: skip
    row.append(
        f"{format_age(now_s - run.started_at_s)} ago" if run.started_at_s is not None else NONE
    )
    row.append(_format_duration(task, now_s))
    if cost and not task.begun:
        row.append(NONE)
    elif cost:
        spent = task_usd(task, now_s)
        row.append(NONE if spent is None else format_money(spent))
    if wide:
        row.append(NONE if run.exit_code is None else str(run.exit_code))
        row.append(escape_line(run.name) or NONE)
        row.append(escape_line(format_assignments(parse_document(run.params))) or NONE)
        why = format_hinted(last_line(run.message), run.hint)
        row.append(escape_line(shorten_text(why, WHY_CHARS_MAX)) or NONE)
        row.append(escape_line(run.placed) or NONE)
    if at_wandb:
        row.append(escape_line(run.wandb) or NONE)
    return row


def _format_duration(task: Task, now_s: float) -> str:
    run = task.run
    if run.started_at_s is None:
        return NONE
    return format_duration(
        (run.ended_at_s if run.ended_at_s is not None else now_s) - run.started_at_s
    )
