"""Rows in the format that a person asked for: the one place that knows how each is written.

A verb says what its rows are as a table, as documents, as names and as plain cells; only what the
format needs is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.output.render import Screen

Cells = tuple[Sequence[str], Iterable[Sequence[object]]]  # header and rows


class Rows(NamedTuple):
    """table: texts for people, safe to print. plain: values for CSV and Parquet. documents: for
    JSON. names: one a line, safe to print.
    """

    table: Callable[[], tuple[Sequence[str], Iterable[Sequence[str]]]]
    documents: Callable[[], Iterable[Mapping[str, object]]]
    plain: Callable[[], Cells] | None = None
    names: Callable[[], Iterable[str]] | None = None


def write_rows(rows: Rows, output: str, screen: Screen) -> bool:
    """False for a table without a row, of which the caller says why."""
    writer = _WRITERS.get(output)
    if writer is None:
        return bool(screen.table(*rows.table()))
    writer(rows, screen)
    return True


def _json(rows: Rows, screen: Screen) -> None:
    """A list, written as it is read: one row a line."""
    separator = "["
    for row in rows.documents():
        screen.piece(f"{separator}\n  {json.dumps(row)}")
        separator = ","
    screen.piece("[]\n" if separator == "[" else "\n]\n")


def _jsonl(rows: Rows, screen: Screen) -> None:
    for row in rows.documents():
        screen.piece(f"{json.dumps(row)}\n")


def _csv(rows: Rows, screen: Screen) -> None:
    from fleetctl.cli.output.csv_text import write_csv

    assert rows.plain is not None
    write_csv(*rows.plain(), screen)


def _parquet(rows: Rows, screen: Screen) -> None:
    from fleetctl.cli.output.parquet import write_parquet

    assert rows.plain is not None
    names, cells = rows.plain()
    write_parquet(names, list(cells), screen)


def _names(rows: Rows, screen: Screen) -> None:
    assert rows.names is not None
    for name in rows.names():
        screen.data(name)


# `wide` is a table; the verb chooses its columns.
_WRITERS: dict[str, Callable[[Rows, Screen], None]] = {
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
    "name": _names,
}
