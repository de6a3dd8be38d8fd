"""Rows as CSV: for spreadsheets and programs, escaped only where a terminal would read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import islice

from fleetctl.cli.output.render import GROUP_ROWS, Screen
from fleetctl.common.text import safe_lines


def write_csv(header: Sequence[str], rows: Iterable[Sequence[object]], screen: Screen) -> None:
    """Streams, in groups of GROUP_ROWS. None is an empty cell; without a header only the rows."""
    rest = iter(rows)
    group: list[Sequence[object]] = [header] if header else list(islice(rest, GROUP_ROWS))
    while group:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(group)
        written = text.getvalue()
        if screen.out_is_terminal:
            written = "\n".join(safe_lines(written)) + "\n"
        screen.piece(written)
        group = list(islice(rest, GROUP_ROWS))


def csv_cell(value: object) -> object:
    """Texts and numbers as they are, deeper values and booleans as JSON."""
    if value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool)):
        return value
    import json

    return json.dumps(value)
