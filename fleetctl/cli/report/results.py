"""`fleetctl results`: what tasks submitted, a row for every task that has run, by index."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import get_terminal_size

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.command.values import count
from fleetctl.cli.output.render import GAP, Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import (
    assignments,
    did_you_mean,
    plural,
    safe,
    scalar,
    shorten,
    width,
)
from fleetctl.views.kinds import target
from fleetctl.views.objects import View, mapping
from fleetctl.views.reading import must_find, open_reading
from fleetctl.views.results import front_of, metric_goals, metric_names, metric_values, result_rows
from fleetctl.views.tasks import CACHED, CANCELLED, ENDED_BADLY, OUTDATED, QUEUED

GROUPS = ("metric", "result", "params")  # of columns, in which a bare name is looked for
# Of attempts, as controllers/model.py has them, whose import takes longer than reading does.
STATES = (
    *("Starting", "Running", "Stopping", "Succeeded", "Failed", "Lost", "Stopped", "Refused"),
    *(CACHED, CANCELLED, QUEUED, OUTDATED),
)
LEVELS_MAX, FIELDS_MAX = 4, 64  # of nested objects that become columns
CELL_CHARACTERS_MAX = 500  # of a table that no terminal cuts
CELLS_MIN = 16  # of parameters, and of a result: less says nothing, so then a line is too long


PAGE = """\
KIND/NAME [--failed | --state STATES] [--best] [--sort-by FIELD]
    [--top N] [--columns FIELDS] [-o table|json|jsonl|csv|parquet | --to DIR]

Show what tasks submitted: one row for every task that has run, failed ones too.
A table cuts long cells, with a mark; the other formats have them whole. Parquet has
a column for each field of nested results.
--to DIR writes what each task submitted to DIR/INDEX.json. Files that tasks wrote to
volumes come with `fleetctl cp volume/NAME:/ DIR`. --best shows a sweep's best trial;
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
        "--to", type=Path, metavar="DIR", help="write each task's result to a file of its own"
    )
    made.add_argument("--failed", action="store_true", help="only tasks that failed")
    made.add_argument(
        "--state", type=states, metavar="STATES", help="only tasks in one of these: Failed,Lost"
    )
    made.add_argument(
        "--columns", type=fields, metavar="FIELDS", help="only these: index,state,lr,result.loss"
    )
    made.add_argument("--best", action="store_true", help="what a sweep's metric says is best")
    made.add_argument(
        "--sort-by", metavar="FIELD", help="least first; -FIELD or FIELD:desc: greatest first"
    )
    made.add_argument("--top", type=count, metavar="N", help="only the first N rows")
    add_output(made, "table", "json", "jsonl", "csv", "parquet")
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = target(args.object, args.namespace)
    if args.to is not None and args.output != "table":
        raise UsageError("`--to` writes JSON files, so `-o` says nothing there")
    if args.to is not None and args.columns:
        raise UsageError("`--to` writes whole results; leave `--columns` out")
    if args.failed and args.state:
        raise UsageError("`--failed` is some states; leave one of the two out")
    with open_reading(home()) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} has no results")
        wanted_states = ENDED_BADLY if args.failed else args.state
        rows = _in_state(result_rows(seen, reading), wanted_states)
        rows = _chosen(rows, seen, args)
        if args.to is not None:
            from fleetctl.cli.report.results_files import write_files

            written = write_files(rows, args.to)
            screen.data(f"wrote {plural(written, 'result')} to {safe(str(args.to))}")
        else:
            _write(rows, seen, args, screen)
    return 0


def states(text: str) -> tuple[str, ...]:
    """`Failed,Lost`, in any case. Raises ArgumentTypeError."""
    found = []
    for word in text.split(","):
        known = next((it for it in STATES if it.lower() == word.strip().lower()), None)
        if known is None:
            near = did_you_mean(word.strip(), STATES) or f"there are {', '.join(STATES)}"
            raise ArgumentTypeError(f"`{word.strip()}` is not a state; {near}")
        found.append(known)
    return tuple(found)


def fields(text: str) -> tuple[str, ...]:
    """Raises ArgumentTypeError."""
    found = tuple(it.strip() for it in text.split(","))
    if not all(found):
        raise ArgumentTypeError(f"`{text}` is not a list of fields; write it as index,params.lr")
    return found


def _in_state(
    rows: Iterator[dict[str, object]], wanted: Sequence[str] | None
) -> Iterator[dict[str, object]]:
    return (row for row in rows if not wanted or {str(row["state"]), _state(row)} & {*wanted})


def _chosen(
    rows: Iterator[dict[str, object]], seen: View, args: Namespace
) -> Iterator[dict[str, object]]:
    """In the order of the flags, and as many. Raises UsageError."""
    top = args.top
    if args.best:
        aims = metric_goals(seen)
        if not aims:
            hint = "name one field with --sort-by, such as result.loss"
            raise UsageError(f"{seen.key} has no metric", hint=hint)
        if len(aims) > 1:
            rows = _front(list(rows), aims)
        elif args.sort_by:
            hint = "leave one of the two out"
            raise UsageError("--best is an order of its own", hint=hint)
        else:
            ((name, goal),) = aims
            found = list(rows)
            if not any(metric_values(row) for row in found):
                return iter(())
            rows = iter(_sorted(found, f"metric.{name}", reverse=goal == "maximize"))
            top = 1 if top is None else top
    if args.sort_by:
        field, reverse = _ordering(args.sort_by)
        rows = iter(_sorted(list(rows), field, reverse=reverse))
    return rows if top is None else islice(rows, top)


def _front(
    rows: list[dict[str, object]], aims: Sequence[tuple[str, str]]
) -> Iterator[dict[str, object]]:
    """Those that no other one beats, the best in the first metric first."""
    by_index = {row["index"]: row for row in rows}
    return (by_index[index] for index in front_of(rows, aims))


def _ordering(asked: str) -> tuple[str, bool]:
    """The field, and whether the greatest comes first: `-loss`, `loss:desc`, `{.result.loss}`."""
    field, _, way = asked.rpartition(":") if asked.endswith((":desc", ":asc")) else (asked, "", "")
    turned = field.startswith("-")
    plain = field.removeprefix("-").strip().removeprefix("{").removesuffix("}")
    return plain.removeprefix("."), turned != (way == "desc")


def _sorted(rows: list[dict[str, object]], field: str, *, reverse: bool) -> list[dict[str, object]]:
    """Numbers before texts; rows without the field last, in any direction."""
    flat = [_flat(row) for row in rows]
    if rows:
        field = _known(field, {name: None for one in flat for name in one})
    having = [at for at, one in enumerate(flat) if one.get(field) is not None]
    having.sort(key=lambda at: _order(flat[at][field]), reverse=reverse)
    return [rows[at] for at in [*having, *sorted(set(range(len(rows))) - set(having))]]


def _known(field: str, known: Iterable[str]) -> str:
    """The column that is meant. Raises UsageError."""
    known = list(known)
    # As one says it: a metric and a result of that name are the same number.
    for name in (field, *(f"{group}.{field}" for group in GROUPS)):
        if name in known:
            return name
    near = did_you_mean(field, known)
    raise UsageError(
        f"no row has a field `{safe(field)}`", hint=near or f"there are {', '.join(known)}"
    )


def _order(value: object) -> tuple[bool, float, str]:
    if isinstance(value, (int, float)):
        return False, float(value), ""
    return True, 0.0, str(value)


def _state(row: Mapping[str, object]) -> str:
    """In a word; documents tell by `outdated`."""
    return OUTDATED if row["outdated"] else str(row["state"])


def _grid(
    rows: Iterable[Mapping[str, object]], columns: Sequence[str] | None, *, nested: bool = False
) -> tuple[list[str], Iterator[list[object]]]:
    """Params and results as columns, `params.lr` and `result.loss`; deeper values as JSON, or with
    `nested` as columns of their own, `result.usage.tokens`. columns: only these. Raises UsageError.
    """
    flat = [_flat(row, nested=nested) for row in rows]
    names = ["index", "state", "attempts"]
    for prefix in ("params.", "metric.", "result."):
        found: dict[str, None] = {}
        for row in flat:
            found.update(dict.fromkeys(key for key in row if key.startswith(prefix)))
        names += found
    if columns and flat:
        names = [_known(field, names) for field in columns]
    return names, ([row.get(name) for name in names] for row in flat)


def _flat(row: Mapping[str, object], *, nested: bool = False) -> dict[str, object]:
    from fleetctl.cli.output.csv_text import csv_cell

    flat: dict[str, object] = {key: row[key] for key in ("index", "state", "attempts")}
    flat["state"] = _state(row)
    for group in ("params", "result"):
        for key, value in mapping(row[group]).items():
            parts = _leaves(f"{group}.{key}", value) if nested else [(f"{group}.{key}", value)]
            flat |= {name: csv_cell(part) for name, part in parts}
    for name, value in metric_values(row).items():
        flat[f"metric.{name}"] = csv_cell(value)
    return flat


def _leaves(name: str, value: object, levels: int = LEVELS_MAX) -> Iterator[tuple[str, object]]:
    """The fields of nested objects; one with too many is a value, such as a histogram."""
    if isinstance(value, dict) and levels and 0 < len(value) <= FIELDS_MAX:
        for key, part in value.items():
            yield from _leaves(f"{name}.{key}", part, levels - 1)
    else:
        yield name, value


def _write(rows: Iterator[dict[str, object]], seen: View, args: Namespace, screen: Screen) -> None:
    metrics = metric_names(seen)

    def table() -> tuple[list[str], Iterable[list[str]]]:
        if args.columns:
            names, values = _grid(rows, args.columns)
            return [safe(it.upper()) for it in names], _texts(values)
        header = ["INDEX", "STATE", "ATTEMPTS", *map(safe, metrics), "PARAMS", "RESULT"]
        cells = (_cells(row, metrics) for row in rows)
        if screen.out_is_terminal:
            return header, _fitted(header, list(cells), get_terminal_size().columns)
        return header, ([shorten(it, CELL_CHARACTERS_MAX) for it in line] for line in cells)

    def documents() -> Iterable[Mapping[str, object]]:
        if not args.columns:
            return rows
        names, values = _grid(rows, args.columns)
        return (dict(zip(names, line, strict=True)) for line in values)

    plain = partial(_grid, rows, args.columns, nested=args.output == "parquet")
    if not write_rows(Rows(table, documents, plain), args.output, screen):
        if args.failed or args.state:
            wanted = " or ".join(args.state or ENDED_BADLY)
            screen.talk(safe(f"no {seen.kind.unit} of {seen.key} is {wanted}"))
            return
        lacking = f"value of {', '.join(metrics)}" if args.best else "results"
        screen.talk(safe(f"{seen.key} has no {lacking} yet"))


def _texts(rows: Iterable[Sequence[object]]) -> Iterator[list[str]]:
    for row in rows:
        yield [shorten(_shown(value), CELL_CHARACTERS_MAX) for value in row]


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return safe(value if isinstance(value, str) else scalar(value))


def _fitted(header: list[str], rows: list[list[str]], columns: int) -> list[list[str]]:
    """A line a row: of parameters and results as much as there is room for, shared fairly."""
    *fixed, params, result = (max(map(width, column)) for column in zip(header, *rows, strict=True))
    room = max(columns - sum(cells + len(GAP) for cells in fixed) - len(GAP), 2 * CELLS_MIN)
    if params + result <= room:
        return rows
    half = room // 2
    most = max(half, room - result), max(half, room - params)
    return [[*row[:-2], shorten(row[-2], most[0]), shorten(row[-1], most[1])] for row in rows]


def _cells(row: Mapping[str, object], metrics: Sequence[str]) -> list[str]:
    cells = [str(row["index"]), safe(_state(row)), str(row["attempts"])]
    values = metric_values(row)
    for value in map(values.get, metrics):
        cells.append("-" if value is None else safe(scalar(value)))
    result = row["result"]
    shown = (
        assignments(result)
        if isinstance(result, dict)
        else ""
        if result is None
        else scalar(result)
    )
    return [*cells, safe(assignments(mapping(row["params"]))) or "-", safe(shown) or "-"]
