"""The parts of a kind's row that screens show: columns of its lists, and fields of its description.

Cells and lines that have to be computed name a function as `module:function`, which views resolve;
nothing is imported here.
"""

from __future__ import annotations

from typing import NamedTuple


class ListColumn(NamedTuple):
    """A column of `get`, of kubectl's lists and of the page.

    cell: `status.inFlight` or `spec.provider` for a value, `view.done` for a property of the
    object's View; `assets:slots_cell` for a function of fleetctl.views.sections, which gets the
    object and the time now. format: `money`, or "" for the value as it is. wide: shown by
    `-o wide` alone; sparse: left out where no object has any value.
    """

    title: str
    cell: str
    format: str = ""
    wide: bool = False
    sparse: bool = False


class DescribeField(NamedTuple):
    """A line of `describe`. path: a field of the spec; for kinds that run work, a function of
    fleetctl/cli/show/work_lines.py. title: "" hides the field, since a line of the
    kind shows it. format: `duration`, `money`, `sources`, or "" for the value as it is.
    default: shown where a stored spec leaves the field out; None shows no line then.
    """

    title: str
    path: str
    format: str = ""
    default: str | int | bool | None = None


# Columns that many kinds share are named by their titles: fleetctl/views/columns.py has them.
Columns = tuple[str | ListColumn, ...]
PLAIN = ("USER", "LABELS", "WHY")  # the end of a list of objects that run nothing
# The end of a list of objects that run work.
WORK = (
    "GPU", "COST", "EST", "DURATION", "AGE", "STARTED", "BUDGET LEFT", "ISOLATION", *PLAIN,
)  # fmt: skip


def default_columns(unit: str) -> Columns:
    """Returns the columns of a kind whose row has none. unit: one piece of its work; empty where
    its objects run nothing.
    """
    if not unit:
        return ("NAME", "STATUS", "AGE", *PLAIN)
    done = ListColumn(f"{unit}s".upper(), "view.done")
    return ("NAME", "STATUS", done, "ACTIVE", "FAILED", "OUTDATED", "RETRIES", "WHERE", *WORK)


# Fields of `describe` for objects that run work, before and behind those of one kind.
WORK_BEGIN = (
    DescribeField("Queue", "queue_lines"),
    DescribeField("Depends on", "depends_lines"),
    DescribeField("Outdated", "outdated_lines"),
    DescribeField("Cache", "cache_lines"),
    DescribeField("Attempts", "attempts_lines"),
    DescribeField("Where", "where_lines"),
    DescribeField("Machines", "machines_lines"),
    DescribeField("Cost", "cost_lines"),
    DescribeField("Timing", "timing_lines"),
)
WORK_END = (
    DescribeField("Nodes", "nodes_lines"),
    DescribeField("GPUs", "gpus_lines"),
    DescribeField("Load", "load_lines"),
    DescribeField("Checkpoint", "checkpoint_lines"),
    DescribeField("Isolation", "isolation_lines"),
    DescribeField("Took", "took_lines"),
    DescribeField("Results", "results_lines"),
    DescribeField("Outputs", "outputs_lines"),
)


def default_fields(unit: str) -> tuple[DescribeField, ...]:
    """Returns the fields of `describe` for a kind that runs work and whose row has none."""
    return (DescribeField(f"{unit.capitalize()}s", "units_lines"), *WORK_BEGIN, *WORK_END)
