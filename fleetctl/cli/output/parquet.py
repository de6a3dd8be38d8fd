"""Rows as a Parquet file on stdout, for notebooks. The only user of pyarrow; loaded only here."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.install import install_hint

INT_MAX = (1 << 63) - 1  # of a column of whole numbers


def write_parquet(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    screen: Screen,
) -> None:
    if screen.out_is_terminal:
        raise UsageError("Parquet is not for terminals", hint="add `> rows.parquet`")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Refused(
            "`-o parquet` needs pyarrow, which is not installed",
            hint=f"{install_hint('parquet')}, or take `-o csv`",
        ) from error
    made = {name: unify_column([row[at] for row in rows]) for at, name in enumerate(columns)}
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(made), sink)
    screen.raw(sink.getvalue().to_pybytes())


def unify_column(values: list[object]) -> list[object]:
    """Returns a column with a single type: numbers become floats together, and all other mixtures,
    every list and object, and whole numbers of more than 64 bits, are JSON text.
    """
    if any(isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX for value in values):
        return [None if value is None else _as_text(value) for value in values]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and not kinds & {list, dict}:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
    return [None if value is None else _as_text(value) for value in values]


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)
