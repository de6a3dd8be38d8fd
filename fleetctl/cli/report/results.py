"""`fleetctl results`: the results of tasks, a row for every task that has run, by index; with
`--to` as a file each, beside the kept outputs.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import get_terminal_size

from fleetctl.cli.command.flags import Parser, add_output, parse_count
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import GAP, Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import (
    cell_width,
    count_noun,
    did_you_mean,
    escape_line,
    format_assignments,
    format_scalar,
    shorten_text,
)
from fleetctl.tracking.written_files import note_written
from fleetctl.views.documents import (
    front_of,
    metric_goals,
    metric_names,
    metric_values,
    result_rows,
)
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.run_files import find_task_outputs, write_output
from fleetctl.views.store_reading import StoreReading, must_find, open_reading
from fleetctl.views.tasks import CACHED, CANCELLED, ENDED_BADLY, OUTDATED, QUEUED

GROUPS = ("metric", "result", "params")  # of columns, in which a bare name is looked for
# As controllers/model.py has them, whose import takes longer than the reading.
STATES = (
    *("Starting", "Running", "Stopping", "Succeeded", "Failed", "Lost", "Stopped", "Refused"),
    *(CACHED, CANCELLED, QUEUED, OUTDATED),
)
LEVELS_MAX, FIELDS_MAX = 4, 64  # of nested objects that become columns
CELL_CHARACTERS_MAX = 500  # of a table that no terminal cuts
# For parameters, and for a result: less shows no value, so then the line may be too long.
CELLS_MIN = 16


PAGE = """\
KIND/NAME [--failed | --state STATES] [--best] [--sort-by FIELD]
    [--top N] [--columns FIELDS] [-o table|json|jsonl|csv|parquet | --to DIR]

Show what tasks submitted: one row for every task that has run, failed ones too.
A table cuts long cells, with a mark; the other formats have them whole. Parquet has
a column for each field of nested results.
--to DIR writes what each task submitted to DIR/INDEX.json, and the outputs that are
kept of it to DIR/INDEX/. Files that tasks wrote to volumes come with `fleetctl cp
volume/NAME:/ DIR`. --best shows a sweep's best trial;
with --top N the N best; of several metrics the trials that no other one beats.
--sort-by takes a column: index, params.lr, result.loss, or `lr` and `loss` alone;
`-loss` or `loss:desc` turns it round. What lacks the field comes last. --columns
takes some of these columns, in their order.

examples:
  fleetctl results job/chunks
  fleetctl results sweep/lr --best --top 5
  fleetctl results job/chunks --sort-by=count:desc --top 10
  fleetctl results job/chunks --failed --columns index,params.file
  fleetctl results sweep/lr -o csv > trials.csv
  fleetctl results job/chunks -o json | jq '.[].result.count'
  fleetctl results job/chunks -o parquet > chunks.parquet
  fleetctl results job/answers -o jsonl > answers.jsonl
  fleetctl results job/chunks --to out

exit codes:
  0 ok, 2 wrong usage, 3 refused (parquet without pyarrow), 4 no such object
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="whose results")
    made.add_argument(
        "--to", type=Path, metavar="DIR", help="write each task's result and outputs there"
    )
    made.add_argument("--failed", action="store_true", help="only tasks that failed")
    made.add_argument(
        "--state",
        type=parse_states,
        metavar="STATES",
        help="only tasks in one of these: Failed,Lost",
    )
    made.add_argument(
        "--columns",
        type=parse_fields,
        metavar="FIELDS",
        help="only these: index,state,lr,result.loss",
    )
    made.add_argument("--best", action="store_true", help="the best by a sweep's metric")
    made.add_argument(
        "--sort-by", metavar="FIELD", help="least first; -FIELD or FIELD:desc: greatest first"
    )
    made.add_argument("--top", type=parse_count, metavar="N", help="only the first N rows")
    add_output(
        made,
        "table",
        "json",
        "jsonl",
        "csv",
        "parquet",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = parse_target(args.object, args.namespace)
    if args.to is not None and args.output != "table":
        raise UsageError("`--to` writes JSON files, so `-o` has no effect there")
    if args.to is not None and args.columns:
        raise UsageError("`--to` writes whole results; leave `--columns` out")
    if args.failed and args.state:
        raise UsageError("`--failed` is some states; leave one of the two out")
    with open_reading(find_state_dir()) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} has no results")
        wanted_states = ENDED_BADLY if args.failed else args.state
        rows = _select_in_state(map(dict, result_rows(seen, reading)), wanted_states)
        rows = _choose_rows(rows, seen, args)
        if args.to is not None:
            written, copied = write_files(rows, args.to, seen, reading)
            files = f" and {count_noun(copied, 'output')}" if copied else ""
            where = escape_line(str(args.to))
            screen.data(f"wrote {count_noun(written, 'result')}{files} to {where}")
        else:
            _write_results(rows, seen, args, screen)
    return 0


def parse_states(text: str) -> tuple[str, ...]:
    """Reads `Failed,Lost`, in any case. Raises ArgumentTypeError."""
    found = []
    for word in text.split(","):
        known = next((it for it in STATES if it.lower() == word.strip().lower()), None)
        if known is None:
            near = did_you_mean(word.strip(), STATES) or f"there are {', '.join(STATES)}"
            raise ArgumentTypeError(f"`{word.strip()}` is not a state; {near}")
        found.append(known)
    return tuple(found)


def parse_fields(text: str) -> tuple[str, ...]:
    """Reads names of fields. Raises ArgumentTypeError."""
    found = tuple(it.strip() for it in text.split(","))
    if not all(found):
        raise ArgumentTypeError(f"`{text}` is not a list of fields; write it as index,params.lr")
    return found


def _select_in_state(
    rows: Iterator[dict[str, object]], wanted: Sequence[str] | None
) -> Iterator[dict[str, object]]:
    return (
        row for row in rows if not wanted or {str(row["state"]), _format_state(row)} & {*wanted}
    )


def _choose_rows(
    rows: Iterator[dict[str, object]],
    seen: View,
    args: Namespace,
) -> Iterator[dict[str, object]]:
    """Yields rows in the order of the flags, and as many. Raises UsageError."""
    top = args.top
    if args.best:
        aims = metric_goals(seen)
        if not aims:
            hint = "name one field with --sort-by, such as result.loss"
            raise UsageError(f"{seen.key} has no metric", hint=hint)
        if len(aims) > 1:
            rows = _choose_front(list(rows), aims)
        elif args.sort_by:
            hint = "leave one of the two out"
            raise UsageError("--best is an order of its own", hint=hint)
        else:
            ((name, goal),) = aims
            found = list(rows)
            if not any(metric_values(row) for row in found):
                return iter(())
            rows = iter(_sort_rows(found, f"metric.{name}", reverse=goal == "maximize"))
            top = 1 if top is None else top
    if args.sort_by:
        field, reverse = _parse_ordering(args.sort_by)
        rows = iter(_sort_rows(list(rows), field, reverse=reverse))
    if top is None:
        return rows
    return islice(rows, top)


def _choose_front(
    rows: list[dict[str, object]], aims: Sequence[tuple[str, str]]
) -> Iterator[dict[str, object]]:
    """Yields the rows that no other one beats, the best in the first metric first."""
    by_index = {row["index"]: row for row in rows}
    return (by_index[index] for index in front_of(rows, aims))


def _parse_ordering(asked: str) -> tuple[str, bool]:
    """Returns the field, and true where the greatest comes first: `-loss`, `loss:desc`,
    `{.result.loss}`."""
    field, _, way = asked.rpartition(":") if asked.endswith((":desc", ":asc")) else (asked, "", "")
    turned = field.startswith("-")
    plain = field.removeprefix("-").strip().removeprefix("{").removesuffix("}")
    return plain.removeprefix("."), turned != (way == "desc")


def _sort_rows(
    rows: list[dict[str, object]],
    field: str,
    *,
    reverse: bool,
) -> list[dict[str, object]]:
    """Sorts numbers before texts; rows without the field last, in any direction."""
    flat = [_flatten_row(row) for row in rows]
    if rows:
        field = _match_column(field, {name: None for one in flat for name in one})
    having = [at for at, one in enumerate(flat) if one.get(field) is not None]
    having.sort(key=lambda at: _sort_key(flat[at][field]), reverse=reverse)
    return [rows[at] for at in [*having, *sorted(set(range(len(rows))) - set(having))]]


def _match_column(field: str, known: Iterable[str]) -> str:
    """Returns the column that is meant. Raises UsageError."""
    known = list(known)
    # By its short name: a metric and a result with that name are the same number.
    for name in (field, *(f"{group}.{field}" for group in GROUPS)):
        if name in known:
            return name
    near = did_you_mean(field, known)
    raise UsageError(
        f"no row has a field `{escape_line(field)}`", hint=near or f"there are {', '.join(known)}"
    )


def _sort_key(value: object) -> tuple[bool, float, str]:
    if isinstance(value, (int, float)):
        return False, float(value), ""
    return True, 0.0, str(value)


def _format_state(row: Mapping[str, object]) -> str:
    """Returns the state as a word; documents have `outdated` instead."""
    if row["outdated"]:
        return OUTDATED
    return str(row["state"])


def _build_grid(
    rows: Iterable[Mapping[str, object]],
    columns: Sequence[str] | None,
    *,
    nested: bool = False,
) -> tuple[list[str], Iterator[list[object]]]:
    """Returns params and results as columns, `params.lr` and `result.loss`; deeper values as JSON,
    or with `nested` as columns of their own, `result.usage.tokens`. columns: only these. Raises
    UsageError.
    """
    flat = [_flatten_row(row, nested=nested) for row in rows]
    names = ["index", "state", "attempts"]
    for prefix in ("params.", "metric.", "result."):
        found: dict[str, None] = {}
        for row in flat:
            found.update(dict.fromkeys(key for key in row if key.startswith(prefix)))
        names += found
    if columns and flat:
        names = [_match_column(field, names) for field in columns]
    return names, ([row.get(name) for name in names] for row in flat)


def _flatten_row(row: Mapping[str, object], *, nested: bool = False) -> dict[str, object]:
    from fleetctl.cli.output.documents import csv_cell

    flat: dict[str, object] = {key: row[key] for key in ("index", "state", "attempts")}
    flat["state"] = _format_state(row)
    for group in ("params", "result"):
        for key, value in as_mapping(row[group]).items():
            parts = _walk_leaves(f"{group}.{key}", value) if nested else [(f"{group}.{key}", value)]
            flat |= {name: csv_cell(part) for name, part in parts}
    for name, value in metric_values(row).items():
        flat[f"metric.{name}"] = csv_cell(value)
    return flat


def _walk_leaves(
    name: str,
    value: object,
    levels: int = LEVELS_MAX,
) -> Iterator[tuple[str, object]]:
    """Yields the fields of nested objects; one with too many is a value, such as a histogram."""
    if isinstance(value, dict) and levels and 0 < len(value) <= FIELDS_MAX:
        for key, part in value.items():
            yield from _walk_leaves(f"{name}.{key}", part, levels - 1)
    else:
        yield name, value


def _write_results(
    rows: Iterator[dict[str, object]],
    seen: View,
    args: Namespace,
    screen: Screen,
) -> None:
    metrics = metric_names(seen)

    def table() -> tuple[list[str], Iterable[list[str]]]:
        if args.columns:
            names, values = _build_grid(rows, args.columns)
            return [escape_line(it.upper()) for it in names], _format_rows(values)
        header = ["INDEX", "STATE", "ATTEMPTS", *map(escape_line, metrics), "PARAMS", "RESULT"]
        cells = (_build_cells(row, metrics) for row in rows)
        if screen.out_is_terminal:
            return header, _fit_rows(header, list(cells), get_terminal_size().columns)
        return header, ([shorten_text(it, CELL_CHARACTERS_MAX) for it in line] for line in cells)

    def documents() -> Iterable[Mapping[str, object]]:
        if not args.columns:
            return rows
        names, values = _build_grid(rows, args.columns)
        return (dict(zip(names, line, strict=True)) for line in values)

    plain = partial(_build_grid, rows, args.columns, nested=args.output == "parquet")
    if not write_rows(OutputRows(table, documents, plain), args.output, screen):
        if args.failed or args.state:
            wanted = " or ".join(args.state or ENDED_BADLY)
            screen.talk(escape_line(f"no {seen.kind.unit} of {seen.key} is {wanted}"))
            return
        lacking = f"value of {', '.join(metrics)}" if args.best else "results"
        screen.talk(escape_line(f"{seen.key} has no {lacking} yet"))


def _format_rows(rows: Iterable[Sequence[object]]) -> Iterator[list[str]]:
    for row in rows:
        yield [shorten_text(_format_value(value), CELL_CHARACTERS_MAX) for value in row]


def _format_value(value: object) -> str:
    if value is None:
        return "-"
    return escape_line(value if isinstance(value, str) else format_scalar(value))


def _fit_rows(
    header: list[str],
    rows: list[list[str]],
    columns: int,
) -> list[list[str]]:
    """Returns a line a row: as much of parameters and results as there is room for, shared
    fairly."""
    *fixed, params, result = (
        max(map(cell_width, column)) for column in zip(header, *rows, strict=True)
    )
    room = max(columns - sum(cells + len(GAP) for cells in fixed) - len(GAP), 2 * CELLS_MIN)
    if params + result <= room:
        return rows
    half = room // 2
    most = max(half, room - result), max(half, room - params)
    return [
        [*row[:-2], shorten_text(row[-2], most[0]), shorten_text(row[-1], most[1])] for row in rows
    ]


def _build_cells(row: Mapping[str, object], metrics: Sequence[str]) -> list[str]:
    cells = [str(row["index"]), escape_line(_format_state(row)), str(row["attempts"])]
    values = metric_values(row)
    for value in map(values.get, metrics):
        cells.append("-" if value is None else escape_line(format_scalar(value)))
    result = row["result"]
    shown = (
        format_assignments(result)
        if isinstance(result, dict)
        else ""
        if result is None
        else format_scalar(result)
    )
    return [
        *cells,
        escape_line(format_assignments(as_mapping(row["params"]))) or "-",
        escape_line(shown) or "-",
    ]


def write_files(
    rows: Iterable[Mapping[str, object]],
    directory: Path,
    seen: View,
    reading: StoreReading,
) -> tuple[int, int]:
    """Writes `INDEX.json` for every task with a result, and its outputs below `INDEX`; returns how
    many of both. Existing ones are replaced, each seen whole or not at all; other files are left
    alone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    outputs: list[Path] = []
    for row in rows:
        outputs += _write_outputs(int(str(row["index"])), directory, seen, reading)
        if row["result"] is None:
            continue
        place = directory / f"{row['index']}.json"
        temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            temporary.write_text(json.dumps(row["result"], indent=2) + "\n", encoding="utf-8")
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        written.append(place)
    note_written([*written, *outputs])
    return len(written), len(outputs)


def _write_outputs(
    index: int,
    directory: Path,
    seen: View,
    reading: StoreReading,
) -> Iterator[Path]:
    task = reading.task(seen, index)
    found = find_task_outputs(find_state_dir(), seen, task, reading) if task is not None else None
    if found is None:
        return
    for file in found.kept.files:
        place = directory / str(index) / file.path
        if not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(directory)):
            raise Refused(f"`{place.parent}` leads out of `{directory}`", hint="remove that link")
        write_output(found.kept, file, place)
        yield place
