"""The columns of each table: a header, and a cell for each object. Pure; `get` prints them, and the
operator writes them into statuses for kubectl. The registry (specs/kinds) names those of a kind.

Columns are for users and may grow; scripts read `-o json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple

from fleetctl.common.text import (
    escape_line,
    format_age,
    format_duration,
    format_money,
    format_scalar,
)
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.kinds.shown import ListColumn, default_columns
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.objects import NONE, View, as_mapping
from fleetctl.views.sections.assets import format_amount, format_value, why_cell


class TableColumn(NamedTuple):
    """A column. `cell` gets the object and the time now. sparse: left out where no object has any
    value."""

    title: str
    cell: Callable[[View, float], str]
    wide: bool = False
    sparse: bool = False


def _format_where(seen: View, _now_s: float) -> str:
    """Returns the providers where the object runs now; for ended work, where it ran."""
    where = seen.map("where") or _count_by_provider(seen)
    if not where:
        return NONE
    if len(where) == 1:
        return escape_line(next(iter(where))) or NONE
    return escape_line(" ".join(f"{provider}:{count}" for provider, count in where.items()))


def _count_by_provider(seen: View) -> Mapping[str, object]:
    placement = seen.status.get("placement")
    found = [as_mapping(it) for it in placement] if isinstance(placement, list) else []
    return {str(it.get("provider")): it["total"] for it in found if it.get("total")}


def _format_age(seen: View, now_s: float) -> str:
    return format_age(now_s - seen.resource.created_at_s)


def _format_worked(seen: View, now_s: float) -> str:
    """Returns how long the object has worked; time spent waiting does not count."""
    worked_s = seen.worked_s(now_s)
    if worked_s is None:
        return NONE
    return format_duration(worked_s)


def _format_started(seen: View, now_s: float) -> str:
    begun_s = seen.time_s("startTime")
    if begun_s is None:
        return NONE
    return f"{format_age(now_s - begun_s)} ago"


def _format_best(seen: View, _now_s: float) -> str:
    if size := seen.count("frontSize"):
        return f"front of {size}"
    metric = as_mapping(seen.map("best").get("metric"))
    if not metric:
        return NONE
    goal = {"minimize": " (min)", "maximize": " (max)"}.get(str(seen.map("metric").get("goal")), "")
    return escape_line(f"{metric.get('name')}={format_scalar(metric.get('value'))}{goal}")


def _format_best_trial(seen: View, _now_s: float) -> str:
    return format_scalar(seen.map("best").get("index", NONE))


def _format_method(seen: View, _now_s: float) -> str:
    return escape_line(seen.text("method")) or NONE


def _format_cost(seen: View, _now_s: float) -> str:
    """Returns the cost of ended runs; empty while no run has a known cost."""
    spent = seen.map("cost").get("actual")
    if isinstance(spent, (int, float)) and spent:
        return format_money(spent)
    return NONE


def _format_estimate(seen: View, _now_s: float) -> str:
    """Returns the estimated cost of the whole object from its last apply; `<=$16.00` where only the
    limits bound it."""
    cost = seen.map("cost")
    expected = cost.get("estimated")
    high = cost.get("estimatedHigh")
    if isinstance(expected, (int, float)):
        return format_money(expected)
    if isinstance(high, (int, float)):
        return f"<={format_money(high)}"
    return NONE


def _format_left(seen: View, _now_s: float) -> str:
    """Returns `$20.98/$25.00`, the share of the object's own budget that is neither used nor set
    aside."""
    own = seen.map("budget")
    left = own.get("left")
    most = own.get("maxCost")
    if not isinstance(left, (int, float)) or not isinstance(most, (int, float)):
        return NONE
    return f"{format_money(left)}/{format_money(most)}"


def _format_labels(seen: View, _now_s: float) -> str:
    return (
        escape_line(",".join(f"{key}={value}" for key, value in seen.resource.labels.items()))
        or NONE
    )


NAME = TableColumn("NAME", lambda seen, _: escape_line(seen.resource.name))
KEY = TableColumn(
    "NAME", lambda seen, _: escape_line(object_key(seen.kind.name, seen.resource.name))
)
NAMESPACE = TableColumn(
    "NAMESPACE",
    lambda seen, _: escape_line(seen.resource.namespace) if seen.kind.namespaced else NONE,
)
STATUS = TableColumn("STATUS", lambda seen, _: escape_line(seen.phase))
USER = TableColumn("USER", lambda seen, _: escape_line(seen.author) or NONE, wide=True, sparse=True)
ACTIVE = TableColumn("ACTIVE", lambda seen, _: str(seen.active))
FAILED = TableColumn("FAILED", lambda seen, _: str(seen.count("failed")))
RETRIES = TableColumn("RETRIES", lambda seen, _: str(seen.count("retries")))
WHERE = TableColumn("WHERE", _format_where)
METHOD = TableColumn("METHOD", _format_method)
BEST = (TableColumn("BEST", _format_best), TableColumn("BEST TRIAL", _format_best_trial))
AGE = TableColumn("AGE", _format_age)
# For kinds that run work: how long, and since when.
TIMES = (
    TableColumn("DURATION", _format_worked, sparse=True),
    AGE,
    TableColumn("STARTED", _format_started, wide=True),
)
ASKED_GPU = TableColumn("GPU", lambda seen, _: escape_line(seen.text("gpu")) or NONE, sparse=True)
STOPPED = TableColumn("STOPPED", lambda seen, _: str(seen.count("stopped") or NONE), sparse=True)
OUTDATED = TableColumn("OUTDATED", lambda seen, _: str(seen.count("outdated") or NONE), sparse=True)
LABELS = TableColumn("LABELS", _format_labels, wide=True)
MONEY = (
    TableColumn("COST", _format_cost, sparse=True),
    TableColumn("EST", _format_estimate, sparse=True),
)
WIDE = (
    TableColumn("BUDGET LEFT", _format_left, wide=True),
    TableColumn(
        "ISOLATION", lambda seen, _: escape_line(seen.text("isolation")) or NONE, wide=True
    ),
    USER,
    LABELS,
    TableColumn("WHY", why_cell, wide=True),
)


# Columns that rows of kinds name by their titles alone.
_SHARED = {
    it.title: it
    for it in (
        NAME, STATUS, METHOD, ACTIVE, FAILED, STOPPED, OUTDATED, RETRIES, WHERE, *BEST, ASKED_GPU,
        *MONEY, *TIMES, *WIDE,
    )
}  # fmt: skip
_FORMATS: Mapping[str, Callable[[object], str]] = {"": format_value, "money": format_amount}


@cache
def list_declared(kind: Kind) -> tuple[TableColumn, ...]:
    """Returns the columns that the registry names for a kind, wide ones too."""
    declared = kind.columns or default_columns(kind.unit)
    return tuple(_SHARED[it] if isinstance(it, str) else _make_column(it) for it in declared)


def _make_column(declared: ListColumn) -> TableColumn:
    part, _, key = declared.cell.partition(":")
    if key:
        module = import_module(f"fleetctl.views.sections.{part}")
        cell: Callable[[View, float], str] = getattr(module, key)
    else:
        cell = _make_value_cell(declared)
    return TableColumn(declared.title, cell, declared.wide, declared.sparse)


def _make_value_cell(declared: ListColumn) -> Callable[[View, float], str]:
    """Returns a cell for a value of the status or the spec, or for a property of the view."""
    owner, _, key = declared.cell.partition(".")
    show = _FORMATS[declared.format]

    def cell(seen: View, _now_s: float) -> str:
        if owner == "view":
            value = getattr(seen, key)
        else:
            value = (seen.status if owner == "status" else seen.spec()).get(key)
        return NONE if value in (None, "") else show(value)

    return cell


_ALL = (
    KEY,
    STATUS,
    TableColumn("DONE", lambda seen, _: seen.done if seen.kind.runs else NONE),
    TableColumn("ACTIVE", lambda seen, _: str(seen.active) if seen.kind.runs else NONE),
    TableColumn("FAILED", lambda seen, _: str(seen.count("failed")) if seen.kind.runs else NONE),
    ASKED_GPU,
    *MONEY,
    *TIMES,
    *WIDE,
)


def choose_columns(kind: Kind | None, *, wide: bool) -> tuple[TableColumn, ...]:
    """Returns the columns for a kind's objects, or for those of all kinds together (None)."""
    chosen: tuple[TableColumn, ...] = _ALL
    if kind is not None:
        chosen = list_declared(kind)
    return tuple(column for column in chosen if wide or not column.wide)


def build_label_columns(keys: Sequence[str], *, everything: bool) -> tuple[TableColumn, ...]:
    """Returns a column for each label, as kubectl titles it, and one for all labels together."""
    columns = tuple(map(_make_label_column, keys))
    if everything:
        return (*columns, TableColumn("LABELS", _format_labels))
    return columns


def _make_label_column(key: str) -> TableColumn:
    return TableColumn(
        escape_line(key.rpartition("/")[2].upper()),
        lambda seen, _: escape_line(seen.resource.labels.get(key, "")) or NONE,
    )


def drop_empty_columns(
    shown: Sequence[TableColumn], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows without the sparse columns that are empty in every row."""
    kept = [
        at
        for at, column in enumerate(shown)
        if not column.sparse or any(row[at] != NONE for row in rows)
    ]
    return [shown[at].title for at in kept], [[row[at] for at in kept] for row in rows]


def last_line(text: str) -> str:
    """Returns the line of a message or traceback that names the error: the last one with text."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
