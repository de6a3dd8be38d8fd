"""Rows as CSV: for spreadsheets and programs, escaped where a terminal or a spreadsheet would read
more than a text in a cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import islice

from fleetctl.cli.output.screen import GROUP_ROWS, Screen
from fleetctl.common.text import escape_lines

_ROW_END = "\r\n"
# A spreadsheet takes a cell with such a beginning for a formula, which may fetch or run things.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    screen: Screen,
) -> None:
    """Streams in groups of GROUP_ROWS. None is an empty cell; without a header only the rows."""
    rest = iter(rows)
    group: list[Sequence[object]] = [header] if header else list(islice(rest, GROUP_ROWS))
    while group:
        written = "".join(map(_format_row, group))
        if screen.out_is_terminal:
            written = "\n".join(escape_lines(written)) + "\n"
        screen.piece(written)
        group = list(islice(rest, GROUP_ROWS))


def _format_row(row: Sequence[object]) -> str:
    """Returns one row. The writer quotes only characters of its own line end, which is why that is
    the longer one, cut afterwards: a bare carriage return would end the row for readers.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator=_ROW_END).writerow([_as_text(value) for value in row])
    return text.getvalue().removesuffix(_ROW_END) + "\n"


def _as_text(value: object) -> object:
    """Returns a text that looks like a formula with `'` before it, which makes it a text in a
    spreadsheet; numbers, also as texts, stay unchanged.
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def csv_cell(value: object) -> object:
    """Returns texts and numbers as they are, deeper values and booleans as JSON."""
    if value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool)):
        return value
    import json

    return json.dumps(value)
