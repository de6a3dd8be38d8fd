"""Writes rows in the format that the user chose: the only module that knows each format.

A verb gives its rows as a table, as documents, as names and as plain cells; only the form that the
format needs is computed.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.output.screen import Screen

Cells = tuple[Sequence[str], Iterable[Sequence[object]]]  # header and rows


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
    from fleetctl.cli.output.csv_text import write_csv

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
