"""`fleetctl top`: shows running work and its cost an hour. Only measured values are shown."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from fleetctl.cli.command.flags import Parser, add_all_namespaces, add_output, one_of
from fleetctl.cli.output.output_rows import (
    GridColumn,
    grid_lines,
    hint_at_others,
    span_cell,
    text_cell,
    usd_cell,
    write_grid,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.report.query import choose_namespace, count_other_namespaces
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun
from fleetctl.stores.read.query import SqlQuery
from fleetctl.views.spending import open_asking

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
SELECT sums.object AS object, phase,
    sums.active - CASE phase WHEN 'Pending' THEN starting ELSE 0 END AS active,
    starting, providers, usd_per_h,
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
        help="table to show (default jobs: everything that runs)",
    )
    made.add_argument(
        "-w", "--watch", action="store_true", help="again and again, until Ctrl-C; for a terminal"
    )
    add_all_namespaces(made)
    add_output(made, "table", "csv", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.watch:
        return _watch_top(args, screen)
    rows, hidden = _query_rows(args)
    columns = _choose_columns(args, rows)
    if not rows and args.output == "table":
        screen.talk(_explain_empty(args))
        hint_at_others(hidden, screen)
        return 0
    write_grid(
        columns,
        rows,
        args.output,
        screen,
        total=_build_total(columns, rows),
    )
    if unpriced := sum(row["unpriced"] for row in rows):
        what, column = ("call", "SPENT") if args.what == "endpoints" else ("live attempt", "$/H")
        screen.warn(f"{count_noun(unpriced, what)} without a known price: not in {column}")
    if args.output == "table":
        hint_at_others(hidden, screen)
    return 0


def _watch_top(args: Namespace, screen: Screen) -> int:
    """Redraws every second. Raises UsageError without a terminal."""
    if args.output != "table" or not screen.out_is_terminal:
        raise UsageError(
            "`top -w` draws on a terminal", hint="`fleetctl get all -w -o json` is for programs"
        )
    from fleetctl.cli.output.live import RedrawnLines
    from fleetctl.common.clock import Deadline

    with RedrawnLines(screen) as shown:
        while True:
            rows, _ = _query_rows(args)
            columns = _choose_columns(args, rows)
            lines = grid_lines(columns, rows, screen, total=_build_total(columns, rows))
            shown.show(lines if rows else [_explain_empty(args)])
            Deadline(None).sleep(WATCH_EVERY_S)


def _query_rows(args: Namespace) -> tuple[list[dict[str, Any]], int]:
    """Returns the rows, and how many namespaces with rows are left out."""
    with open_asking(find_state_dir()) as asking:
        if args.what == "endpoints":
            return _run_query(asking, ENDPOINTS, choose_namespace(args)), 0
        if args.what == "jobs":
            return query_jobs(asking, choose_namespace(args)), count_other_namespaces(
                asking, choose_namespace(args)
            )
        # A provider has no namespace: its slots and its bill are shared by all.
        return query_providers(asking, choose_namespace(args) if args.bound else None), 0


def _choose_columns(args: Namespace, rows: Iterable[dict[str, Any]]) -> Sequence[GridColumn]:
    if args.what != "jobs":
        return COLUMNS[args.what]
    sampled = any(row["gpu_percent"] is not None for row in rows)
    if sampled:
        return (*JOB_COLUMNS, GPU_COLUMN)
    return JOB_COLUMNS


def _explain_empty(args: Namespace) -> str:
    return NOTHING[args.what]


def query_jobs(asking: SqlQuery, namespace: str | None = None) -> list[dict[str, Any]]:
    """Returns objects that hold a sandbox, cheapest first."""
    return _run_query(asking, JOBS, namespace)


def query_providers(asking: SqlQuery, namespace: str | None = None) -> list[dict[str, Any]]:
    """Returns every provider that ever had a run, with its last hour."""
    rows = _run_query(asking, PROVIDERS, RECENT_S, namespace)
    starts: dict[str, list[float]] = {}
    for provider, start_s in asking.ask(STARTS, (RECENT_S, namespace)).rows:
        starts.setdefault(provider, []).append(start_s)
    for row in rows:
        found = starts.get(row["provider"])
        row["p50_start_s"] = found[(len(found) - 1) // 2] if found else None
    return rows


def _run_query(
    asking: SqlQuery,
    sql: str,
    *parameters: object,
) -> list[dict[str, Any]]:
    answer = asking.ask(sql, parameters)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _build_total(columns: Iterable[GridColumn], rows: list[dict[str, Any]]) -> dict[str, Any]:
    first, *others = (column.key for column in columns)
    total: dict[str, Any] = {first: "TOTAL"}
    for key in others:
        known = [row[key] for row in rows if isinstance(row[key], (int, float))]
        if key not in ("p50_start_s", "left_usd", "gpu_percent", "p50_s", "p95_s"):
            total[key] = sum(known) if known else None
    return total
