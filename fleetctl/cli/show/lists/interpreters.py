"""`fleetctl get interpreters`: lists the sandboxes that programs of this machine made, each above
those that its code created in recursive queries.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fleetctl.cli.output.output_rows import OutputRows, write_listed
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, format_age
from fleetctl.views.spending import open_asking

HEADER = ("NAME", "PROVIDER", "STATE", "PARENT", "DEPTH", "AGE", "CALLS", "TOKENS", "LLM COST")
WIDE = ("REASON", "PID", "DURATION")
Row = Mapping[str, Any]


def get_interpreters(args: Namespace, screen: Screen) -> int:
    """Prints the list. Raises NotFound for a named one that is not recorded."""
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "interpreters are listed as they are; they have no labels",
            hint="fleetctl get interpreters [NAME ...] [-o table|wide|name|json|csv], or"
            ' `fleetctl query "select * from interpreters"`',
        )
    with open_asking(find_state_dir()) as asking:
        answer = asking.ask("SELECT * FROM interpreters ORDER BY created_at, run")
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    wanted = set(args.words[1:])
    if missing := sorted(wanted - {row["run"] for row in rows}):
        message = f"no interpreter is called `{escape_line(missing[0])}`"
        raise NotFound(message, hint="fleetctl get interpreters")
    shown = [row for row in _in_trees(rows) if not wanted or row["run"] in wanted]
    wide = args.output == "wide"
    written = OutputRows(
        table=lambda: (
            (*HEADER, *(WIDE if wide else ())),
            (_build_cells(row, wide) for row in shown),
        ),
        documents=lambda: map(_build_document, shown),
        plain=lambda: (list(answer.columns), ([*row.values()] for row in shown)),
        names=lambda: (escape_line(row["run"]) for row in shown),
    )
    if not write_listed(written, args, screen):
        screen.talk("no interpreters: no program of this machine made any")
    return 0


def _in_trees(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields each before those below it."""
    known = {row["run"] for row in rows}
    below: dict[str | None, list[Row]] = {}
    for row in rows:
        below.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)
    waiting = list(reversed(below.get(None, [])))
    while waiting:
        row = waiting.pop()
        yield row
        waiting += reversed(below.get(row["run"], []))


def _build_cells(row: Row, wide: bool) -> list[str]:
    usd = "-" if row["llm_usd"] is None else f"${row['llm_usd']:.4f}"
    cells = [
        f"{'  ' * int(row['depth'])}{row['run']}",
        row["provider"],
        row["state"],
        row["parent"] or "-",
        str(row["depth"]),
        format_age(SystemClock().now_s() - datetime.fromisoformat(row["created_at"]).timestamp()),
        "-" if row["calls"] is None else str(row["calls"]),
        "-" if row["tokens"] is None else str(row["tokens"]),
        f"{usd} + {row['unpriced']} unpriced" if row["unpriced"] else usd,
    ]
    if wide:
        lasted = "-" if row["duration_s"] is None else format_age(row["duration_s"])
        cells += [row["reason"] or "-", str(row["pid"]), lasted]
    return [escape_line(cell) for cell in cells]


def _build_document(row: Row) -> dict[str, object]:
    return {**row, "usage": json.loads(row["usage"]) if row["usage"] else None}
