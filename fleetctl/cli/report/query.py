"""`fleetctl query`: SQL over past and present work, which reads only the views, within bounds;
cost, top and report share its options and hints.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from itertools import islice

from fleetctl.cli.command.flags import Parser, add_output, add_timeout, parse_count
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.stores.read.query import VIEWS, QueryAnswer, SqlQuery
from fleetctl.views.spending import TIMEOUT_S, open_asking

# As many as a user can look at, or a notebook can hold; more is one flag away.
ROWS_MAX = 100_000
CELL_NONE = "-"


_PAGE = """\
"SELECT ..." [-o table|csv|json|parquet] [--limit N] [--timeout TIME]

Ask with SQL (SQLite's) what ran, where, with what, and what it cost.
The views are {views}; `--views` shows their columns.
params, result and labels are JSON: params->>'lr', json_extract(result, '$.loss').

examples:
  fleetctl query --views
  fleetctl query "select state, count(*) from tasks where job='chunks' group by 1"
  fleetctl query "select params->>'lr' lr, min(result->>'loss') best from results \
where sweep='lr' group by 1 order by 2"
  fleetctl query 'select * from attempts' -o csv > attempts.csv

exit codes:
  0 ok, 2 wrong usage or query, 3 refused (parquet without pyarrow)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, _PAGE.format(views=", ".join(VIEWS)))
    made.add_argument("sql", nargs="?", metavar="SQL", help="one SELECT")
    add_output(
        made,
        "table",
        "csv",
        "json",
        "parquet",
    )
    made.add_argument("--views", action="store_true", help="show the views and their columns")
    made.add_argument(
        "--limit",
        type=_parse_limit,
        default=ROWS_MAX,
        metavar="N",
        help="rows at most (%(default)s)",
    )
    add_timeout(made, default_s=TIMEOUT_S, meaning="how long it may take (10s)")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.views == bool(args.sql):
        raise UsageError(
            "`fleetctl query` takes one SELECT, or `--views`",
            hint="fleetctl query 'select state, count(*) from tasks group by 1'",
        )
    with open_asking(find_state_dir(), timeout_s=args.timeout) as asking:
        if args.views:
            rows = [(view, ", ".join(asking.columns(view))) for view in VIEWS]
            screen.table(("VIEW", "COLUMNS"), rows)
            return 0
        answer = asking.ask(args.sql)
        _write_answer(answer, args, screen)
        if next(answer.rows, None) is not None:
            screen.warn(f"there are more than {args.limit} rows; `--limit` shows more")
    return 0


def _parse_limit(text: str) -> int:
    rows = parse_count(text)
    if not rows:
        raise argparse.ArgumentTypeError("`0` rows would show nothing; it must be at least 1")
    return rows


def _write_answer(
    answer: QueryAnswer,
    args: Namespace,
    screen: Screen,
) -> None:
    rows = islice(answer.rows, args.limit)
    names = make_unique(answer.columns)
    plain = (tuple(map(_encode_bytes, row)) for row in rows)
    columns = names if args.output == "parquet" else answer.columns
    written = OutputRows(
        table=lambda: (
            [escape_line(it) for it in answer.columns],
            (list(map(_format_cell, row)) for row in rows),
        ),
        documents=lambda: (dict(zip(names, row, strict=True)) for row in plain),
        plain=lambda: (columns, plain),
    )
    if not write_rows(written, args.output, screen):
        screen.talk("no rows")


def make_unique(columns: tuple[str, ...]) -> list[str]:
    """Renames a second `n` to `n_2`: an object has each key once."""
    names: list[str] = []
    for column in columns:
        name = column
        number = 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _encode_bytes(value: object) -> object:
    """Returns bytes, which only a query's own functions make, as hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return value


def _format_cell(value: object) -> str:
    if value is None:
        return CELL_NONE
    return escape_line(str(_encode_bytes(value)))


def choose_namespace(args: Namespace) -> str | None:
    """Returns the namespace of the query; None for all."""
    if args.everywhere:
        return None
    return str(args.namespace)


def count_other_namespaces(asking: SqlQuery, namespace: str | None) -> int:
    """Returns how many other namespaces have had runs, which a list for one does not show."""
    if namespace is None:
        return 0
    sql = "SELECT count(DISTINCT namespace) FROM attempts WHERE namespace <> ?1"
    return int(next(asking.ask(sql, (namespace,)).rows)[0])
