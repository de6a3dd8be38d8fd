"""`fleetctl top`: what runs now and what it costs an hour. Only what is measured is shown."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from fleetctl.cli.command.flags import Parser, add_all_namespaces, add_output
from fleetctl.cli.command.values import one_of
from fleetctl.cli.output.grid import (
    GridColumn,
    grid_lines,
    hint_at_others,
    span_cell,
    text_cell,
    usd_cell,
    write_grid,
)
from fleetctl.cli.output.render import Screen
from fleetctl.cli.report.query_views import open_asking, others, within
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import plural
from fleetctl.stores.read.query import Asking

LIVE = "state IN ('Starting', 'Running', 'Stopping')"
RECENT_S = 3600.0
WATCH_EVERY_S = 1.0
# Summed before the objects are joined: a GROUP BY carries all that it is given, row by row.
JOBS = f"""
WITH sums AS (
    SELECT uid, object, sum({LIVE}) AS active, sum(state = 'Starting') AS starting,
        group_concat(DISTINCT CASE WHEN {LIVE} THEN provider END) AS providers,
        sum(CASE WHEN {LIVE} THEN usd_per_h END) AS usd_per_h,
        CASE WHEN count(usd_per_h) THEN sum(usd) END AS usd,
        sum({LIVE} AND usd_per_h IS NULL) AS unpriced
    FROM attempts WHERE ?1 IS NULL OR namespace = ?1 GROUP BY uid, object HAVING sum({LIVE})
)
SELECT sums.object AS object, phase, sums.active AS active, starting, providers, usd_per_h,
    sums.usd AS usd, budget_left_usd AS left_usd, gpu_percent, unpriced
FROM sums JOIN objects USING (uid) ORDER BY usd_per_h, 1
"""  # noqa: S608 - of constants
PROVIDERS = f"""
SELECT provider, sum(state IN ('Running', 'Stopping')) AS running,
    sum(state = 'Starting') AS starting,
    sum(recent) AS ended, sum(recent AND state = 'Failed') AS failed,
    sum(CASE WHEN {LIVE} THEN usd_per_h END) AS usd_per_h,
    CASE WHEN count(usd_per_h) THEN sum(usd) END AS usd,
    sum({LIVE} AND usd_per_h IS NULL) AS unpriced
FROM (SELECT *, coalesce(strftime('%s', ended_at) >= now_s() - ?1, 0) AS recent
    FROM attempts WHERE ?2 IS NULL OR namespace = ?2)
GROUP BY provider ORDER BY 1
"""  # noqa: S608 - of constants
STARTS = """
SELECT provider, start_s FROM attempts
WHERE start_s IS NOT NULL AND strftime('%s', started_at) >= now_s() - ?1
    AND (?2 IS NULL OR namespace = ?2) ORDER BY provider, start_s
"""
ENDPOINTS = """
SELECT object, phase, in_flight, concurrency, queue, calls, tokens_in + tokens_out AS tokens,
    answer_ms_p50 / 1000 AS p50_s, answer_ms_p95 / 1000 AS p95_s, usd, unpriced
FROM endpoints WHERE ?1 IS NULL OR namespace = ?1 ORDER BY in_flight, 1
"""
JOB_COLUMNS = (
    GridColumn("NAME", "object", text_cell),
    GridColumn("STATUS", "phase", text_cell),
    GridColumn("ACTIVE", "active", text_cell),
    GridColumn("STARTING", "starting", text_cell),
    GridColumn("WHERE", "providers", text_cell),
    GridColumn("$/H", "usd_per_h", usd_cell),
    GridColumn("SPENT", "usd", usd_cell),
    GridColumn("LEFT", "left_usd", usd_cell),
)
GPU_COLUMN = GridColumn("GPU%", "gpu_percent", text_cell)  # where any has samples
PROVIDER_COLUMNS = (
    GridColumn("NAME", "provider", text_cell),
    GridColumn("RUNNING", "running", text_cell),
    GridColumn("STARTING", "starting", text_cell),
    GridColumn("ENDED 1H", "ended", text_cell),
    GridColumn("FAILED 1H", "failed", text_cell),
    GridColumn("P50 START", "p50_start_s", span_cell),
    GridColumn("$/H", "usd_per_h", usd_cell),
    GridColumn("SPENT", "usd", usd_cell),
)


ENDPOINT_COLUMNS = (
    GridColumn("NAME", "object", text_cell),
    GridColumn("STATUS", "phase", text_cell),
    GridColumn("IN FLIGHT", "in_flight", text_cell),
    GridColumn("SLOTS", "concurrency", text_cell),
    GridColumn("QUEUE", "queue", text_cell),
    GridColumn("CALLS", "calls", text_cell),
    GridColumn("TOKENS", "tokens", text_cell),
    GridColumn("P50", "p50_s", span_cell),
    GridColumn("P95", "p95_s", span_cell),
    GridColumn("SPENT", "usd", usd_cell),
)
COLUMNS = {
    "jobs": JOB_COLUMNS,
    "providers": PROVIDER_COLUMNS,
    "endpoints": ENDPOINT_COLUMNS,
}
NOTHING = {
    "jobs": "nothing runs",
    "providers": "nothing has run yet",
    "endpoints": "no Endpoint is declared",
}


PAGE = """\
[jobs|providers|endpoints] [-w] [-n NS | -A] [-o table|csv|json]

Show what runs now and what it costs an hour; how each provider fares, over all
namespaces unless -n names one; or how busy model endpoints are.

examples:
  fleetctl top
  fleetctl top -w
  fleetctl top providers
  fleetctl top endpoints -w
  fleetctl top jobs -o json | jq 'map(.usd_per_h) | add'

exit codes:
  0 ok, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "what",
        nargs="?",
        type=one_of(*COLUMNS),
        default="jobs",
        metavar="|".join(COLUMNS),
        help="what to show (default jobs: everything that runs)",
    )
    made.add_argument(
        "-w", "--watch", action="store_true", help="again and again, until Ctrl-C; for a terminal"
    )
    add_all_namespaces(made)
    add_output(made, "table", "csv", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.watch:
        return _watch(args, screen)
    rows, hidden = _seen(args)
    columns = _columns(args, rows)
    if not rows and args.output == "table":
        screen.talk(_nothing(args))
        hint_at_others(hidden, screen)
        return 0
    write_grid(columns, rows, args.output, screen, total=_total(columns, rows))
    if unpriced := sum(row["unpriced"] for row in rows):
        what, column = ("call", "SPENT") if args.what == "endpoints" else ("live attempt", "$/H")
        screen.warn(f"{plural(unpriced, what)} without a known price: not in {column}")
    if args.output == "table":
        hint_at_others(hidden, screen)
    return 0


def _watch(args: Namespace, screen: Screen) -> int:
    """Redrawn every second. Raises UsageError where nobody would see that."""
    if args.output != "table" or not screen.out_is_terminal:
        raise UsageError(
            "`top -w` draws on a terminal", hint="`fleetctl get all -w -o json` is for programs"
        )
    from fleetctl.cli.output.redraw import Redrawn
    from fleetctl.common.deadline import Deadline

    with Redrawn(screen) as shown:
        while True:
            rows, _ = _seen(args)
            columns = _columns(args, rows)
            lines = grid_lines(columns, rows, screen, total=_total(columns, rows))
            shown.show(lines if rows else [_nothing(args)])
            Deadline(None).sleep(WATCH_EVERY_S)


def _seen(args: Namespace) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many namespaces are left out that have some."""
    with open_asking(home()) as asking:
        if args.what == "endpoints":
            return _rows(asking, ENDPOINTS, within(args)), 0
        if args.what == "jobs":
            return jobs(asking, within(args)), others(asking, within(args))
        # A provider is not of a namespace: its slots and its bill are shared by all.
        return providers(asking, within(args) if args.bound else None), 0


def _columns(args: Namespace, rows: Iterable[dict[str, Any]]) -> Sequence[GridColumn]:
    if args.what != "jobs":
        return COLUMNS[args.what]
    sampled = any(row["gpu_percent"] is not None for row in rows)
    return (*JOB_COLUMNS, GPU_COLUMN) if sampled else JOB_COLUMNS


def _nothing(args: Namespace) -> str:
    return NOTHING[args.what]


def jobs(asking: Asking, namespace: str | None = None) -> list[dict[str, Any]]:
    """Objects that hold a sandbox, cheapest first."""
    return _rows(asking, JOBS, namespace)


def providers(asking: Asking, namespace: str | None = None) -> list[dict[str, Any]]:
    """Every provider that ever ran something, with its last hour."""
    rows = _rows(asking, PROVIDERS, RECENT_S, namespace)
    starts: dict[str, list[float]] = {}
    for provider, start_s in asking.ask(STARTS, (RECENT_S, namespace)).rows:
        starts.setdefault(provider, []).append(start_s)
    for row in rows:
        found = starts.get(row["provider"])
        row["p50_start_s"] = found[(len(found) - 1) // 2] if found else None
    return rows


def _rows(asking: Asking, sql: str, *parameters: object) -> list[dict[str, Any]]:
    answer = asking.ask(sql, parameters)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _total(columns: Iterable[GridColumn], rows: list[dict[str, Any]]) -> dict[str, Any]:
    first, *others = (column.key for column in columns)
    total: dict[str, Any] = {first: "TOTAL"}
    for key in others:
        known = [row[key] for row in rows if isinstance(row[key], (int, float))]
        if key not in ("p50_start_s", "left_usd", "gpu_percent", "p50_s", "p95_s"):
            total[key] = sum(known) if known else None
    return total
