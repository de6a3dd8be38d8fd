"""Objects and rows as documents: JSON and YAML, `-o jsonpath=`, `-o custom-columns=`, and CSV, with
control characters escaped.

Both formats escape control characters by themselves.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from fleetctl.cli.output.jsonpath import (
    Path,
    VisitLimit,
    find_values,
    format_value,
    parse_path,
    parse_template,
    render_template,
)
from fleetctl.cli.output.screen import GROUP_ROWS, Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line, escape_lines
from fleetctl.specs.kinds.registry import API_VERSION

Document = Mapping[str, object]
NONE = "<none>"  # as kubectl prints a cell without a value
HINT = "write it as custom-columns=NAME:.metadata.name,PHASE:.status.phase"
# For programs: one name a value, plain numbers, times as RFC 3339. They may grow to the right.
OBJECT_CSV = (
    "kind:.kind,name:.metadata.name,phase:.status.phase,reason:.status.reason,"
    "total:.status.total,active:.status.active,succeeded:.status.succeeded,failed:.status.failed,"
    "cached:.status.cached,retries:.status.retries,usd:.status.cost.actual,"
    "created_at:.metadata.creationTimestamp,started_at:.status.startTime,"
    "ended_at:.status.completionTime,labels:.metadata.labels,"
    "estimated_usd:.status.cost.estimated,duration_s:.status.durationSeconds,gpu:.status.gpu"
)
TASK_CSV = (
    "owner:.metadata.owner,index:.metadata.index,attempt:.metadata.attempt,"
    "attempts:.status.attempts,state:.status.phase,reason:.status.reason,"
    "provider:.status.provider,exit_code:.status.exitCode,started_at:.status.startTime,"
    "ended_at:.status.completionTime,usd:.status.cost.actual,params:.spec.params,"
    "run:.metadata.name,message:.status.message,duration_s:.status.durationSeconds,"
    "machine:.status.machine"
)

_ROW_END = "\r\n"
# A spreadsheet takes a cell with such a beginning for a formula, which may fetch or run things.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def build_list(documents: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": "List", "items": list(documents)}


def write_all(
    documents: Sequence[Mapping[str, object]],
    output: str,
    screen: Screen,
) -> None:
    """Writes several objects: a JSON List, or a YAML stream, which `apply -f` reads as it is."""
    if output == "yaml":
        screen.data("\n---\n".join(_render_yaml(document, screen) for document in documents))
    else:
        write_document(build_list(documents), output, screen)


def write_document(
    document: object,
    output: str,
    screen: Screen,
) -> None:
    screen.data(
        _render_yaml(document, screen) if output == "yaml" else json.dumps(document, indent=2)
    )


def write_stream(
    documents: Iterable[object],
    output: str,
    screen: Screen,
) -> None:
    """Writes for `-w`: one JSON document a line, or YAML documents that each end in a separator."""
    for document in documents:
        screen.data(
            f"{_render_yaml(document, screen)}\n---" if output == "yaml" else json.dumps(document)
        )


def _render_yaml(document: object, screen: Screen) -> str:
    from fleetctl.manifest.yaml.emit import (
        to_yaml,  # here: only this format pays for the YAML library
    )

    text = to_yaml(document).removesuffix("\n")
    # The emitter takes bidirectional marks for ordinary letters; a terminal does not.
    if screen.out_is_terminal:
        return "\n".join(escape_lines(text))
    return text


class CustomColumn(NamedTuple):
    title: str
    path: Path


def is_templated(output: str) -> bool:
    return "=" in output or output == "csv"


def make_writer(
    output: str,
    csv_columns: str,
    screen: Screen,
    *,
    headers: bool = True,
) -> Callable[..., None]:
    """Returns a function of documents (and `one=True` for a single object, which is not a list)
    that writes them; a further call continues below. Raises UsageError for a wrong template.
    """
    form, _, text = output.partition("=")
    if form == "jsonpath":
        template = parse_template(text)

        def write(documents: Iterable[Document], *, one: bool = False) -> None:
            everything = list(documents)
            _write_text(
                render_template(template, everything[0] if one else build_list(everything)), screen
            )

        return write
    if form == "custom-columns":
        return _table_writer(custom_columns(text), screen, headers=headers)
    return _csv_writer(custom_columns(csv_columns), screen, headers=headers)


def custom_columns(text: str) -> list[CustomColumn]:
    """Parses `NAME:.metadata.name,LR:.spec.params.lr`. Commas in brackets belong to the path."""
    made = []
    for part in _split_columns(text):
        title, colon, path = part.partition(":")
        if not colon or not title.strip() or not path.strip():
            raise UsageError(f"`{part}` is not a column", hint=HINT)
        made.append(CustomColumn(title.strip(), parse_path(path)))
    return made


def _split_columns(text: str) -> list[str]:
    parts = [""]
    depth = 0
    for char in text:
        depth += (char in "[(") - (char in ")]")
        if char == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _write_text(text: str, screen: Screen) -> None:
    """Writes the text unchanged; on a terminal it is made safe and ends its line, so that the
    prompt has its own."""
    if screen.out_is_terminal and text:
        text = "\n".join(escape_lines(text)) + "\n"
    screen.piece(text)


def _table_writer(
    columns: Sequence[CustomColumn],
    screen: Screen,
    *,
    headers: bool,
) -> Callable[..., None]:
    widths: list[int] = []
    limit = VisitLimit()

    def write(documents: Iterable[Document], *, one: bool = False) -> None:
        nonlocal widths
        rows = (
            [_format_cell(column, document, limit) for column in columns] for document in documents
        )
        header = [escape_line(column.title) for column in columns] if headers else []
        widths = screen.table(header, rows, widths=widths) or widths
        if not widths and headers:  # kubectl prints the header of an empty list, too
            screen.data("  ".join(header))
            widths = [len(title) for title in header]

    return write


def _format_cell(
    column: CustomColumn,
    document: Document,
    limit: VisitLimit,
) -> str:
    values = find_values(column.path, document, limit)
    found = [format_value(value) for value in values if value is not None]
    return escape_line(",".join(found)) or NONE


def _csv_writer(
    columns: Sequence[CustomColumn],
    screen: Screen,
    *,
    headers: bool,
) -> Callable[..., None]:
    header: list[str] = [column.title for column in columns] if headers else []
    limit = VisitLimit()

    def write(documents: Iterable[Document], *, one: bool = False) -> None:
        rows = (
            [_csv_value(find_values(column.path, document, limit)) for column in columns]
            for document in documents
        )
        write_csv(header, rows, screen)
        header.clear()

    return write


def _csv_value(found: Sequence[object]) -> object:
    if len(found) == 1:
        return csv_cell(found[0])
    if found:
        return csv_cell(list(found))
    return None


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
