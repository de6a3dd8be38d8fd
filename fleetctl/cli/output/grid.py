"""Sums as a table, CSV or JSON: the same rows for users and programs. Called by cost and top."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import count_noun, escape_line, format_duration, format_money

Row = Mapping[str, object]
NONE = "-"


class GridColumn(NamedTuple):
    """A column. `key` is for programs, `title` and `cell` for the table."""

    title: str
    key: str
    cell: Callable[[object], str]


def write_grid(
    columns: Sequence[GridColumn],
    rows: Sequence[Row],
    output: str,
    screen: Screen,
    *,
    total: Row | None = None,
) -> None:
    """Writes the rows. The total is a row of the table alone: programs add by themselves."""
    keys = [column.key for column in columns]
    written = OutputRows(
        table=lambda: _build_table(columns, rows, total),
        documents=lambda: ({key: row.get(key) for key in keys} for row in rows),
        plain=lambda: (keys, ([row.get(key) for key in keys] for row in rows)),
    )
    write_rows(written, output, screen)


def grid_lines(
    columns: Sequence[GridColumn],
    rows: Sequence[Row],
    screen: Screen,
    *,
    total: Row | None = None,
) -> list[str]:
    """Returns the lines of the table, for callers that print them in a way of their own."""
    return screen.table_lines(*_build_table(columns, rows, total))


def _build_table(
    columns: Sequence[GridColumn],
    rows: Sequence[Row],
    total: Row | None,
) -> tuple[list[str], list[list[str]]]:
    shown = [*rows, total] if total is not None and len(rows) > 1 else rows
    lines = [[_format_cell(column, row) for column in columns] for row in shown]
    return [column.title for column in columns], lines


def _format_cell(column: GridColumn, row: Row) -> str:
    value = row.get(column.key)
    if value is None:
        return NONE
    return column.cell(value)


def hint_at_others(namespaces: int, screen: Screen) -> None:
    """Mentions that other namespaces have costs too."""
    if namespaces:
        screen.hint(f"{count_noun(namespaces, 'other namespace')} not shown: -A shows all")


def text_cell(value: object) -> str:
    return escape_line(str(value)) or NONE


def usd_cell(value: object) -> str:
    assert isinstance(value, (int, float))
    return format_money(value)


def span_cell(value: object) -> str:
    assert isinstance(value, (int, float))
    return format_duration(value)


def hours_cell(value: object) -> str:
    """Returns seconds as hours, with the digits that a bill has."""
    assert isinstance(value, (int, float))
    return f"{value / 3600:,.2f}"


def percent_cell(value: object) -> str:
    """Returns a ratio with its sign: `-4.3%`."""
    assert isinstance(value, (int, float))
    return f"{value * 100:+.1f}%"
