"""Sums as a table, CSV or JSON: the same rows for people and programs. Called by cost and top."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.text import duration, plural, safe, usd

Row = Mapping[str, object]
NONE = "-"


class GridColumn(NamedTuple):
    """`key` is what programs read, `title` and `cell` what people see."""

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
    """The total is a row of the table alone: programs add by themselves."""
    keys = [column.key for column in columns]
    written = Rows(
        table=lambda: _table(columns, rows, total),
        documents=lambda: ({key: row.get(key) for key in keys} for row in rows),
        plain=lambda: (keys, ([row.get(key) for key in keys] for row in rows)),
    )
    write_rows(written, output, screen)


def grid_lines(
    columns: Sequence[GridColumn], rows: Sequence[Row], screen: Screen, *, total: Row | None = None
) -> list[str]:
    """The lines of the table, for who prints them in a way of its own."""
    return screen.table_lines(*_table(columns, rows, total))


def _table(
    columns: Sequence[GridColumn], rows: Sequence[Row], total: Row | None
) -> tuple[list[str], list[list[str]]]:
    shown = [*rows, total] if total is not None and len(rows) > 1 else rows
    lines = [[_cell(column, row) for column in columns] for row in shown]
    return [column.title for column in columns], lines


def _cell(column: GridColumn, row: Row) -> str:
    value = row.get(column.key)
    return NONE if value is None else column.cell(value)


def hint_at_others(namespaces: int, screen: Screen) -> None:
    """What is spent elsewhere is spent too."""
    if namespaces:
        screen.hint(f"{plural(namespaces, 'other namespace')} not shown: -A shows all")


def text_cell(value: object) -> str:
    return safe(str(value)) or NONE


def usd_cell(value: object) -> str:
    assert isinstance(value, (int, float))
    return usd(value)


def span_cell(value: object) -> str:
    assert isinstance(value, (int, float))
    return duration(value)


def hours_cell(value: object) -> str:
    """Seconds as hours, with the digits that a bill has."""
    assert isinstance(value, (int, float))
    return f"{value / 3600:,.2f}"


def percent_cell(value: object) -> str:
    """A ratio with its sign: `-4.3%`."""
    assert isinstance(value, (int, float))
    return f"{value * 100:+.1f}%"
