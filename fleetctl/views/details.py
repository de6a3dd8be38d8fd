"""Describes an object of a kind that runs no work as data: its fields, and the tables of its kind,
such as the objects that wait in a Queue.

`describe` writes them as text, the API sends them, and the page draws them: all from the row of the
kind in specs/kinds/registry.py, whose `fields` are of the spec, and whose `lines` and `tables` name
functions of views/sections/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.common.text import (
    escape_line,
    format_assignments,
    format_duration,
    format_money,
    format_scalar,
)
from fleetctl.specs.kinds.shown import DescribeField

if TYPE_CHECKING:
    from fleetctl.views.kinds import Target
    from fleetctl.views.objects import View
    from fleetctl.views.store_reading import StoreReading

ROWS_MAX = 100  # of a table; a screen is no list
EMPTY = "-"


class DetailCell(NamedTuple):
    """A cell. target: the object that its text names; at_s: a time, which is shown as an age.
    private: only readers of the row's namespace may see it."""

    text: str
    target: Target | None = None
    at_s: float | None = None
    private: bool = False


class DetailRow(NamedTuple):
    """A row. namespace: of the object that it is about; empty: it is about the owner's own."""

    cells: tuple[DetailCell, ...]
    namespace: str = ""


class DetailTable(NamedTuple):
    """A table. note: what it leaves out; without a row, the sentence in its place."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[DetailRow, ...]
    note: str = ""


def list_details(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (title, text) of each field; text of users is escaped. Of work, none: its own screens
    have that."""
    if seen.kind.runs:
        return
    yield from _list_fields(seen)
    for name, text in call_section(seen.kind.lines, seen, reading, now_s):
        yield name, escape_line(text)


def list_tables(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> Iterator[DetailTable]:
    """Yields the tables of the object's kind, each with ROWS_MAX rows at most and without columns
    that are empty."""
    for table in call_section(seen.kind.tables, seen, reading, now_s):
        yield _drop_empty_columns(table)


def _drop_empty_columns(table: DetailTable) -> DetailTable:
    filled = [
        at
        for at in range(len(table.columns))
        if any(row.cells[at].text != EMPTY or row.cells[at].at_s is not None for row in table.rows)
    ]
    return table._replace(
        columns=tuple(table.columns[at] for at in filled),
        rows=tuple(row._replace(cells=tuple(row.cells[at] for at in filled)) for row in table.rows),
    )


def call_section(named: str, seen: View, reading: StoreReading, now_s: float) -> Iterator[Any]:
    """Yields from a function of a kind's row; nothing where the row names none."""
    if named:
        module, _, name = named.partition(":")
        yield from getattr(import_module(module), name)(seen, reading, now_s)


def _list_fields(seen: View) -> Iterator[tuple[str, str]]:
    """Yields the fields of a spec: those with a default first, as its kind's row has them, then the
    others in their order. A Secret's has references, never values.
    """
    rows = {it.path: it for it in seen.kind.fields}
    defaults = {it.path: it.default for it in rows.values() if it.default is not None}
    for key, value in {**defaults, **seen.shown_spec()}.items():
        row = rows.get(key) or DescribeField(key[:1].upper() + key[1:], key)
        shown = _FORMATS[row.format](value)
        if shown and row.title:
            yield row.title, escape_line(shown)


def _format_sources(value: object) -> str:
    """Returns `TOKEN from HF_TOKEN`."""
    if not isinstance(value, dict):
        return _format_list(value)
    return ", ".join(f"{name} from {source}" for name, source in value.items())


def _format_span(value: object) -> str:
    return format_duration(value) if isinstance(value, (int, float)) else _format_list(value)


def _format_usd(value: object) -> str:
    return format_money(value) if isinstance(value, (int, float)) else _format_list(value)


def _format_list(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_format_value(item) for item in value)
    return _format_value(value)


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return format_assignments(dict(_walk_leaves(value)))
    if value is None:
        return ""
    return format_scalar(value).strip('"')


def _walk_leaves(value: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yields the fields of a block, by dotted names; whole numbers as users write them."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _walk_leaves(inner, f"{above}{name}.")
        elif isinstance(inner, float) and inner.is_integer():
            yield above + name, int(inner)
        else:
            yield above + name, inner


_FORMATS: Mapping[str, Callable[[object], str]] = {
    "": _format_list,
    "duration": _format_span,
    "money": _format_usd,
    "sources": _format_sources,
}
