"""Writes rows and sums in the format that the user chose: the only module that knows each
format.

A verb gives its rows as a table, as documents, as names and as plain cells; only the form that
the format needs is computed.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import count_noun, escape_line, format_duration, format_money

Cells = tuple[Sequence[str], Iterable[Sequence[object]]]  # header and rows

Row = Mapping[str, object]
NONE = "-"


class OutputRows(NamedTuple):
    """The forms of the rows. table: texts for the screen, safe to print. plain: values for CSV and
    Parquet. documents: for JSON. names: one a line, safe to print.
    """

    table: Callable[[], tuple[Sequence[str], Iterable[Sequence[str]]]]
    documents: Callable[[], Iterable[Mapping[str, object]]]
    plain: Callable[[], Cells] | None = None
    names: Callable[[], Iterable[str]] | None = None


def write_rows(
    rows: OutputRows,
    output: str,
    screen: Screen,
) -> bool:
    """Returns False for a table without a row; the caller prints the reason."""
    writer = _WRITERS.get(output)
    if writer is None:
        return bool(screen.table(*rows.table()))
    writer(rows, screen)
    return True


def write_listed(
    rows: OutputRows,
    args: Namespace,
    screen: Screen,
) -> bool:
    """Writes rows by the flags of `get`, as write_rows does. JSON is YAML as well."""
    table = rows.table
    if args.no_headers:
        rows = rows._replace(table=lambda: ((), table()[1]))
    return write_rows(rows, "json" if args.output == "yaml" else args.output, screen)


def _write_json(rows: OutputRows, screen: Screen) -> None:
    """Writes a list as it is read: one row a line."""
    separator = "["
    for row in rows.documents():
        screen.piece(f"{separator}\n  {json.dumps(row)}")
        separator = ","
    screen.piece("[]\n" if separator == "[" else "\n]\n")


def _write_jsonl(rows: OutputRows, screen: Screen) -> None:
    for row in rows.documents():
        screen.piece(f"{json.dumps(row)}\n")


def _write_csv(rows: OutputRows, screen: Screen) -> None:
    from fleetctl.cli.output.documents import write_csv

    assert rows.plain is not None
    write_csv(*rows.plain(), screen)


def _write_parquet(rows: OutputRows, screen: Screen) -> None:
    from fleetctl.cli.output.parquet import write_parquet

    assert rows.plain is not None
    names, cells = rows.plain()
    write_parquet(names, list(cells), screen)


def _write_names(rows: OutputRows, screen: Screen) -> None:
    assert rows.names is not None
    for name in rows.names():
        screen.data(name)


# `wide` is a table; the verb chooses its columns.
_WRITERS: dict[str, Callable[[OutputRows, Screen], None]] = {
    "json": _write_json,
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "name": _write_names,
}


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
