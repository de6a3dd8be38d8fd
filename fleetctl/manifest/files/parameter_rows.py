"""Rows of a .jsonl or .csv file, each the parameters of a task. Called by includes.py."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetctl.common.text import and_more, count_noun
from fleetctl.manifest.files import fence
from fleetctl.manifest.plain_scalars import INT_MAX, INT_MIN
from fleetctl.manifest.problems import shorten_text

ROWS_MAX = 1_000_000
NAMED_MAX = 3
ERRORS_MAX = 20  # lines that are reported per file
ROWS_BYTES_MAX = 64 * 1024 * 1024  # a stored spec is read as a whole

Row = dict[str, Any]


class RowError(Exception):
    """Line `line` of the file cannot be used. others: further errors, the first ones of
    the file.
    """

    def __init__(
        self,
        line: int,
        message: str,
        *,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.line = line
        self.hint = hint
        self.others: tuple[RowError, ...] = ()


def read_rows(path: str) -> list[Row]:
    """Every row of the file.

    Raises OSError when it cannot be read, ValueError when the file as a whole will not do, RowError
    when one line will not.
    """
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise ValueError("a file of rows must end in .jsonl or .csv")
    rows: list[Row] = []
    for row in reader(_read_text(path)):
        rows.append(row)
        if len(rows) > ROWS_MAX:
            raise ValueError(f"it holds more than {ROWS_MAX:,} rows")
    if not rows:
        raise ValueError("it holds no rows")
    return rows


def _read_text(path: str) -> str:
    with fence.open_regular(path) as stream:
        data = stream.read(ROWS_BYTES_MAX + 1)
    if len(data) > ROWS_BYTES_MAX:
        raise ValueError(f"it is larger than {ROWS_BYTES_MAX // 1024**2} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RowError(line, "the line is not UTF-8") from error


def _json_lines(text: str) -> Iterator[Row]:
    wrong: list[RowError] = []
    more = 0  # wrong lines beyond ERRORS_MAX: their errors would take a thousand times the file
    # Not splitlines(): a JSON text may hold U+2028 and its like unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _json_row(number, line)
        except RowError as error:
            if len(wrong) < ERRORS_MAX:
                wrong.append(error)
            elif more < ROWS_MAX:
                more += 1
            else:
                break  # a file of so many rows is refused in any case
        else:
            if not wrong:
                yield row
    if wrong:
        raise _all_of(wrong, more)


def _json_row(number: int, line: str) -> Row:
    try:
        row = _DECODER.decode(line)
    except RecursionError as error:
        raise RowError(number, "the line is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise RowError(number, f"column {error.colno} is not JSON: {error.msg.lower()}") from error
    except ValueError as error:
        raise RowError(number, str(error)) from error
    if not isinstance(row, dict):
        raise RowError(number, "the line must be a JSON object")
    return row


def _all_of(wrong: list[RowError], more: int) -> RowError:
    """Returns the first error, with the others; the last one has the number of further lines."""
    first, *others = wrong
    if more:
        last = others.pop()
        text = f"{last}; so it is with {count_noun(more, 'line')} below it"
        others.append(RowError(last.line, text, hint=last.hint))
    first.others = tuple(others)
    return first


def _comma_separated(text: str) -> Iterator[Row]:
    """Every field is a text: whether `007` is a number is the task's business."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(lines, [])
        for name in header:
            if header.count(name) > 1:
                raise RowError(1, f"two columns have the name `{shorten_text(name)}`")
        for fields in lines:
            if not fields:
                continue
            if len(fields) != len(header):
                raise _ragged_row_error(lines.line_num, fields, header, lines)
            yield dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise RowError(lines.line_num, f"the row is not CSV: {error}") from error


def _ragged_row_error(
    line: int,
    fields: list[str],
    header: list[str],
    rest: Iterable[list[str]],
) -> RowError:
    """Returns the error for the first row whose fields are not those of the header, with how many
    of the rows below it are no better.
    """
    has = count_noun(len(fields), "field")
    wants = count_noun(len(header), "column")
    message = f"the row has {has}, and the header {wants}"
    others = 0
    with suppress(csv.Error):  # reported by itself, once these are right
        others = sum(1 for it in rest if it and len(it) != len(header))
    if others:
        message += f"; so it is with {count_noun(others, 'row')} below it"
    if len(fields) > len(header):
        return RowError(line, message, hint='write a field that holds a comma as `"a, b"`')
    lacking = and_more([f"`{shorten_text(it)}`" for it in header[len(fields) :]], most=NAMED_MAX)
    commas = "," * (len(header) - len(fields))
    hint = f"{lacking} is missing; end the row with `{commas}` where it is empty"
    return RowError(line, message, hint=hint)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"`{shorten_text(twice)}` is given twice")
    return row


def _parse_whole(text: str) -> int:
    value = int(text) if len(text) <= 20 else None
    if value is None or not INT_MIN <= value <= INT_MAX:
        raise ValueError("a whole number must fit into 64 bits")
    return value


def _parse_fraction(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number must be finite")
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"`{text}` is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_pairs,
    parse_int=_parse_whole,
    parse_float=_parse_fraction,
    parse_constant=_refuse_constant,
)
_READERS: dict[str, Callable[[str], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _comma_separated,
}
