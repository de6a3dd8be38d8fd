"""`fleetctl query`: SQL over what has run. Only reading, only the views, within bounds."""

from __future__ import annotations

import argparse
from argparse import Namespace
from itertools import islice

from fleetctl.cli.command.flags import Parser, add_output, add_timeout
from fleetctl.cli.command.values import count
from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.cli.report.query_views import TIMEOUT_S, open_asking
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.stores.read.query import VIEWS, Answer

# What a person can look at, or a notebook can hold; more is one flag away.
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
    add_output(made, "table", "csv", "json", "parquet")
    made.add_argument("--views", action="store_true", help="show the views and their columns")
    made.add_argument(
        "--limit", type=_limit, default=ROWS_MAX, metavar="N", help="rows at most (%(default)s)"
    )
    add_timeout(made, default_s=TIMEOUT_S, meaning="how long it may take (10s)")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.views == bool(args.sql):
        raise UsageError(
            "`fleetctl query` takes one SELECT, or `--views`",
            hint="fleetctl query 'select state, count(*) from tasks group by 1'",
        )
    with open_asking(home(), timeout_s=args.timeout) as asking:
        if args.views:
            rows = [(view, ", ".join(asking.columns(view))) for view in VIEWS]
            screen.table(("VIEW", "COLUMNS"), rows)
            return 0
        answer = asking.ask(args.sql)
        _write(answer, args, screen)
        if next(answer.rows, None) is not None:
            screen.warn(f"there are more than {args.limit} rows; `--limit` shows more")
    return 0


def _limit(text: str) -> int:
    rows = count(text)
    if not rows:
        raise argparse.ArgumentTypeError("`0` rows would show nothing; it must be at least 1")
    return rows


def _write(answer: Answer, args: Namespace, screen: Screen) -> None:
    rows, names = islice(answer.rows, args.limit), unique(answer.columns)
    plain = (tuple(map(_plain, row)) for row in rows)
    columns = names if args.output == "parquet" else answer.columns
    written = Rows(
        table=lambda: (
            [safe(it) for it in answer.columns],
            (list(map(_cell, row)) for row in rows),
        ),
        documents=lambda: (dict(zip(names, row, strict=True)) for row in plain),
        plain=lambda: (columns, plain),
    )
    if not write_rows(written, args.output, screen):
        screen.talk("no rows")


def unique(columns: tuple[str, ...]) -> list[str]:
    """A second `n` becomes `n_2`: an object has each key once."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _plain(value: object) -> object:
    """Bytes, which only a query's own functions make, as hexadecimal."""
    return value.hex() if isinstance(value, bytes) else value


def _cell(value: object) -> str:
    return CELL_NONE if value is None else safe(str(_plain(value)))
