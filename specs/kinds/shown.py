"""The parts of a kind's row that screens show: columns of its lists, and fields of its description.

Cells and lines that have to be computed name a function as `module:function`, which views resolve;
nothing is imported here.
"""

from __future__ import annotations

from typing import NamedTuple


class ListColumn(NamedTuple):
    """A column of `get`, of kubectl's lists and of the page.

    cell: `status.inFlight` or `spec.provider` for a value; `assets:slots_cell` for a function of
    fleetctl.views.sections, which gets the object and the time now. format: `money`, or "" for
    the value as it is. wide: shown by `-o wide` alone; sparse: left out where no object has any
    value.
    """

    title: str
    cell: str
    format: str = ""
    wide: bool = False
    sparse: bool = False


class DescribeField(NamedTuple):
    """A line of `describe`. path: a field of the spec. title: "" hides the field, since a line of
    the kind shows it. format: `duration`, `money`, `sources`, or "" for the value as it is.
    default: shown where a stored spec leaves the field out; None shows no line then.
    """

    title: str
    path: str
    format: str = ""
    default: str | int | bool | None = None


# Columns that many kinds share are named by their titles: fleetctl/views/columns.py has them.
Columns = tuple[str | ListColumn, ...]
PLAIN = ("LABELS", "WHY")  # the end of a list of objects that run nothing
