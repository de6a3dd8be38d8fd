"""`fleetctl cost`: past costs by object, kind, provider or label, and their estimates."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from fleetctl.cli.command.flags import Parser, add_all_namespaces, add_output, parse_moment
from fleetctl.cli.output.output_rows import (
    GridColumn,
    hint_at_others,
    hours_cell,
    percent_cell,
    text_cell,
    usd_cell,
    write_grid,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.report.query import choose_namespace, count_other_namespaces
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun
from fleetctl.views.spending import (
    BY,
    GROUPINGS,
    LABEL,
    GroupCost,
    GroupEstimate,
    is_grouping,
    open_asking,
    query_estimates,
    query_saved,
    query_spent,
)

PAGE = """\
[--by job|kind|provider|user|label=KEY] [--since TIME] [-n NS | -A]
    [-o table|csv|json]

Show what was spent: each attempt's price times its duration, live ones up to now.
Attempts without a known price are counted apart. The provider's own bill decides.
Of a Function it counts the containers that stay warm, and each call in them as well.
What a task asked of an Endpoint counts to its job; --by provider shows the endpoint.
--by user: who applied it last over a team's server; `-` for the server's own user.
What deleted objects cost stays in it, while they are kept (90 days by default).
CACHE SAVED is what the work had cost whose results were taken from the cache.

examples:
  fleetctl cost
  fleetctl cost --by provider --since 7d
  fleetctl cost -A --by label=team -o csv

exit codes:
  0 ok, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "--by",
        type=_parse_by,
        default="job",
        metavar="WHAT",
        help="job, kind, provider, user or label=KEY",
    )
    made.add_argument(
        "--since",
        type=parse_moment,
        metavar="TIME",
        help="only what was spent in the last 7d, or since 2026-11-01",
    )
    add_all_namespaces(made)
    add_output(made, "table", "csv", "json")
    return made


def _parse_by(text: str) -> str:
    if is_grouping(text):
        return text
    raise argparse.ArgumentTypeError(f"`{text}` is not one of {GROUPINGS}")


def run(args: Namespace, screen: Screen) -> int:
    since_s = None if args.since is None else args.since(SystemClock().now_s())
    namespace = choose_namespace(args)
    with open_asking(find_state_dir()) as asking:
        groups = query_spent(asking, args.by, since_s=since_s, namespace=namespace)
        estimates = {} if since_s is not None else query_estimates(asking, args.by, namespace)
        savings = query_saved(asking, args.by, since_s=since_s, namespace=namespace)
        hidden = count_other_namespaces(asking, namespace)
    columns = _choose_columns(args.by, estimates, savings)
    if any(group.deleted for group in groups):
        columns.append(GridColumn("DELETED", "deleted", text_cell))
    if groups or args.output != "table":
        rows = [_build_row(group, estimates, savings) for group in groups]
        total = _build_total(groups, estimates, savings)
        write_grid(
            columns,
            rows,
            args.output,
            screen,
            total=total,
        )
    else:
        screen.talk("nothing has run" + ("" if since_s is None else " since then"))
    if unpriced := sum(group.unpriced for group in groups):
        whose = "its" if unpriced == 1 else "their"
        message = (
            f"{count_noun(unpriced, 'attempt')} without a known price: {whose} cost is not in it"
        )
        screen.warn(message)
    if dark := sum(group.unpriced_warm for group in groups):
        whose = "its" if dark == 1 else "their"
        what = f"{count_noun(dark, 'Function')} without a known price of what stays warm"
        screen.warn(f"{what}: {whose} cost is not in it")
    if args.output == "table":
        hint_at_others(hidden, screen)
    return 0


def _build_row(
    group: GroupCost,
    estimates: dict[str | None, GroupEstimate],
    savings: dict[str | None, float],
) -> dict[str, Any]:
    found = estimates.get(group.key, GroupEstimate(None, None, None))
    figures = group._asdict()
    del figures["unpriced_warm"]  # printed apart
    row = {**figures, "estimate": found.usd, "error": found.error}
    if savings:
        return {**row, "saved_usd": savings.get(group.key, 0.0)}
    return row


def _build_total(
    groups: Sequence[GroupCost],
    estimates: dict[str | None, GroupEstimate],
    savings: dict[str | None, float],
) -> dict[str, Any]:
    sums: dict[str, Any] = {"key": "TOTAL"}
    if savings:
        sums["saved_usd"] = sum(savings.values())
    for name in ("objects", "attempts", "seconds", "usd", "failed_usd", "unpriced", "deleted"):
        sums[name] = _sum_known(getattr(group, name) for group in groups)
    if not estimates:
        return sums
    whole = GroupEstimate(*(_sum_known(column) for column in zip(*estimates.values(), strict=True)))
    return {**sums, "estimate": whole.usd, "error": whole.error}


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    return None


def _choose_columns(
    by: str,
    estimates: dict[str | None, GroupEstimate],
    savings: dict[str | None, float],
) -> list[GridColumn]:
    title = BY.get(by, by.removeprefix(LABEL)).upper()
    columns = [GridColumn(title, "key", text_cell)]
    if by != "job":
        columns.append(GridColumn("OBJECTS", "objects", text_cell))
    columns += [
        GridColumn("ATTEMPTS", "attempts", text_cell),
        GridColumn("HOURS", "seconds", hours_cell),
    ]
    if estimates:
        columns += [
            GridColumn("ESTIMATE", "estimate", usd_cell),
            GridColumn("ERROR", "error", percent_cell),
        ]
    return [
        *columns,
        GridColumn("ACTUAL", "usd", usd_cell),
        GridColumn("FAILED", "failed_usd", usd_cell),
        *([GridColumn("CACHE SAVED", "saved_usd", usd_cell)] if savings else []),
        GridColumn("UNPRICED", "unpriced", text_cell),
    ]
