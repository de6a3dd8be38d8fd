"""`-o jsonpath=`, `-o custom-columns=` and `-o csv` of `get`: documents, written as one asks.

Called by the lists of `get` with the documents that `-o json` would print; loaded only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.output.csv_text import csv_cell, write_csv
from fleetctl.cli.output.documents import listing
from fleetctl.cli.output.jsonpath import Path, find, parse_path, parse_template, render, shown
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.text import safe, safe_lines

Document = Mapping[str, object]
NONE = "<none>"  # as kubectl prints a column of which there is nothing
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
    "run:.metadata.name,message:.status.message,duration_s:.status.durationSeconds"
)


class CustomColumn(NamedTuple):
    title: str
    path: Path


def is_templated(output: str) -> bool:
    return "=" in output or output == "csv"


def writer(
    output: str, csv_columns: str, screen: Screen, *, headers: bool = True
) -> Callable[..., None]:
    """A function of documents (and `one=True` for a single object, which is not a list) that writes
    them; called again it goes on below. Raises UsageError for a template that is wrong.
    """
    form, _, text = output.partition("=")
    if form == "jsonpath":
        template = parse_template(text)

        def write(documents: Iterable[Document], *, one: bool = False) -> None:
            everything = list(documents)
            _write_text(render(template, everything[0] if one else listing(everything)), screen)

        return write
    if form == "custom-columns":
        return _table_writer(custom_columns(text), screen, headers=headers)
    return _csv_writer(custom_columns(csv_columns), screen, headers=headers)


def custom_columns(text: str) -> list[CustomColumn]:
    """`NAME:.metadata.name,LR:.spec.params.lr`. Commas in brackets belong to the path."""
    made = []
    for part in _parts(text):
        title, colon, path = part.partition(":")
        if not colon or not title.strip() or not path.strip():
            raise UsageError(f"`{part}` is not a column", hint=HINT)
        made.append(CustomColumn(title.strip(), parse_path(path)))
    return made


def _parts(text: str) -> list[str]:
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[(") - (char in ")]")
        if char == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _write_text(text: str, screen: Screen) -> None:
    """As it is; on a terminal it is made safe and ends its line, so that the prompt has its own."""
    if screen.out_is_terminal and text:
        text = "\n".join(safe_lines(text)) + "\n"
    screen.piece(text)


def _table_writer(
    columns: Sequence[CustomColumn], screen: Screen, *, headers: bool
) -> Callable[..., None]:
    widths: list[int] = []

    def write(documents: Iterable[Document], *, one: bool = False) -> None:  # noqa: ARG001
        nonlocal widths
        rows = ([_cell(column, document) for column in columns] for document in documents)
        header = [safe(column.title) for column in columns] if headers else []
        widths = screen.table(header, rows, widths=widths) or widths
        if not widths and headers:  # kubectl prints the header of an empty list, too
            screen.data("  ".join(header))
            widths = [len(title) for title in header]

    return write


def _cell(column: CustomColumn, document: Document) -> str:
    found = [shown(value) for value in find(column.path, document) if value is not None]
    return safe(",".join(found)) or NONE


def _csv_writer(
    columns: Sequence[CustomColumn], screen: Screen, *, headers: bool
) -> Callable[..., None]:
    header: list[str] = [column.title for column in columns] if headers else []

    def write(documents: Iterable[Document], *, one: bool = False) -> None:  # noqa: ARG001
        rows = (
            [_csv_value(find(column.path, document)) for column in columns]
            for document in documents
        )
        write_csv(header, rows, screen)
        header.clear()

    return write


def _csv_value(found: Sequence[object]) -> object:
    return csv_cell(found[0]) if len(found) == 1 else csv_cell(list(found)) if found else None
