"""`fleetctl cost`: what was spent by object, kind, provider or label, and what was estimated."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fleetctl.cli.command.flags import Parser, add_all_namespaces, add_output
from fleetctl.cli.command.values import moment
from fleetctl.cli.output.grid import (
    GridColumn,
    hint_at_others,
    hours_cell,
    percent_cell,
    text_cell,
    usd_cell,
    write_grid,
)
from fleetctl.cli.output.render import Screen
from fleetctl.cli.report.query_views import open_asking, others, within
from fleetctl.common.clock import SystemClock
from fleetctl.common.home import home
from fleetctl.common.text import plural
from fleetctl.stores.read.query import Asking
from fleetctl.views.selectors import is_label

BY = {"job": "object", "kind": "kind", "provider": "provider"}
LABEL = "label="
# An attempt counts by the share of it that lies after the first parameter (seconds since the
# epoch; NULL takes all), and so does what a Function keeps warm. Money that is not known is counted
# apart, for it is not nothing.
ATTEMPTS = """
WITH spans AS (
    SELECT object, kind, provider, uid, namespace, state, 1 AS attempts, duration_s AS seconds,
        duration_s AS lasted_s, coalesce(strftime('%s', ended_at), now_s()) - ?1 AS after_s,
        usd, usd_per_h IS NOT NULL AS priced, usd IS NULL AS unpriced, 0 AS unpriced_warm,
        deleted_at
    FROM attempts
    UNION ALL
    SELECT object, kind, 'endpoint/' || endpoint, uid, namespace, state, 0, 0.0, duration_s,
        coalesce(strftime('%s', ended_at), now_s()) - ?1, usd, usd > 0 OR unpriced = 0,
        unpriced > 0, 0, deleted_at
    FROM calls
    UNION ALL
    SELECT object, kind, provider, uid, namespace, 'Warm', 0, seconds,
        coalesce(strftime('%s', until), now_s()) - strftime('%s', since),
        coalesce(strftime('%s', until), now_s()) - ?1,
        usd, usd_per_h IS NOT NULL OR usd > 0, 0, unpriced, deleted_at
    FROM warm
), shares AS (
    SELECT *, CASE WHEN ?1 IS NULL THEN 1.0 WHEN lasted_s > 0
        THEN max(0.0, min(1.0, after_s * 1.0 / lasted_s)) ELSE after_s >= 0 END AS share
    FROM spans
)
SELECT {key} AS key, count(DISTINCT uid), sum(attempts), round(sum(seconds * share), 3),
    CASE WHEN sum(priced) THEN sum(usd * share) END AS spent,
    sum(CASE WHEN state IN ('Failed', 'Cancelled') THEN usd * share END), sum(unpriced),
    sum(unpriced_warm), count(DISTINCT CASE WHEN deleted_at IS NOT NULL THEN uid END)
FROM shares {joined} WHERE share > 0 AND (?3 IS NULL OR shares.namespace = ?3)
GROUP BY 1 ORDER BY spent, 1
"""
LABELED = """JOIN (SELECT uid, json_extract(labels, '$."' || ?2 || '"') AS label FROM objects)
USING (uid)"""


# What the error of an estimate is, only an object can tell that is over and whose price is known.
ESTIMATES = """
WITH paid AS (
    SELECT uid, CASE WHEN sum(usd IS NULL) = 0 THEN sum(usd) END AS spent FROM attempts GROUP BY uid
), known AS (
    SELECT objects.*, spent,
        phase IN ('Succeeded', 'Failed', 'Skipped') AND spent IS NOT NULL AS over
    FROM objects JOIN paid USING (uid)
    WHERE estimated_usd IS NOT NULL AND (?2 IS NULL OR namespace = ?2)
)
SELECT {key}, sum(estimated_usd), sum(CASE WHEN over THEN estimated_usd END),
    sum(CASE WHEN over THEN spent END)
FROM known GROUP BY 1
"""


# What was not spent: the cost of each run whose result was taken instead of doing its work again.
SAVED = """
SELECT {key}, sum(saved_usd) FROM reuses {joined}
WHERE (?1 IS NULL OR strftime('%s', at) >= ?1) AND (?3 IS NULL OR reuses.namespace = ?3)
GROUP BY 1 HAVING sum(saved_usd) > 0
"""


class Estimated(NamedTuple):
    """One group in USD: all of it, and what of it is over, with what that cost."""

    usd: float | None
    over_usd: float | None
    actual_usd: float | None

    @property
    def error(self) -> float | None:
        """0.18: it cost 18 % more than estimated."""
        if self.actual_usd is None or not self.over_usd:
            return None
        return self.actual_usd / self.over_usd - 1


class Spent(NamedTuple):
    """One group. usd: of the attempts with a known price."""

    key: str | None
    objects: int
    attempts: int
    seconds: float | None
    usd: float | None
    failed_usd: float | None
    unpriced: int
    unpriced_warm: int  # Functions whose warm containers have no known price
    deleted: int  # objects of the group that are gone


PAGE = """\
[--by job|kind|provider|label=KEY] [--since TIME] [-n NS | -A]
    [-o table|csv|json]

Show what was spent: each attempt's price times its duration, live ones up to now.
Attempts without a known price are counted apart. The provider's own bill decides.
Of a Function it counts the containers that stay warm, and each call in them as well.
What a task asked of an Endpoint counts to its job; --by provider shows the endpoint.
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
        "--by", type=_by, default="job", metavar="WHAT", help="job, kind, provider or label=KEY"
    )
    made.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="only what was spent in the last 7d, or since 2026-11-01",
    )
    add_all_namespaces(made)
    add_output(made, "table", "csv", "json")
    return made


def _by(text: str) -> str:
    if text in BY or (text.startswith(LABEL) and is_label(text.removeprefix(LABEL))):
        return text
    raise argparse.ArgumentTypeError(f"`{text}` is not one of {', '.join(BY)}, label=KEY")


def run(args: Namespace, screen: Screen) -> int:
    since_s = None if args.since is None else args.since(SystemClock().now_s())
    namespace = within(args)
    with open_asking(home()) as asking:
        groups = spent(asking, args.by, since_s=since_s, namespace=namespace)
        estimates = {} if since_s is not None else estimated(asking, args.by, namespace)
        savings = saved(asking, args.by, since_s=since_s, namespace=namespace)
        hidden = others(asking, namespace)
    columns = _columns(args.by, estimates, savings)
    if any(group.deleted for group in groups):
        columns.append(GridColumn("DELETED", "deleted", text_cell))
    if groups or args.output != "table":
        rows = [_row(group, estimates, savings) for group in groups]
        total = _total(groups, estimates, savings)
        write_grid(columns, rows, args.output, screen, total=total)
    else:
        screen.talk("nothing has run" + ("" if since_s is None else " since then"))
    if unpriced := sum(group.unpriced for group in groups):
        whose = "its" if unpriced == 1 else "their"
        message = f"{plural(unpriced, 'attempt')} without a known price: {whose} cost is not in it"
        screen.warn(message)
    if dark := sum(group.unpriced_warm for group in groups):
        whose = "its" if dark == 1 else "their"
        what = f"{plural(dark, 'Function')} without a known price of what stays warm"
        screen.warn(f"{what}: {whose} cost is not in it")
    if args.output == "table":
        hint_at_others(hidden, screen)
    return 0


def spent(
    asking: Asking, by: str, *, since_s: float | None, namespace: str | None = None
) -> list[Spent]:
    """Cheapest first, so that what costs most stands next to the prompt."""
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    sql = ATTEMPTS.format(key=BY.get(by, "label"), joined="" if label is None else LABELED)
    return [Spent(*row) for row in asking.ask(sql, (since_s, label, namespace)).rows]


def saved(
    asking: Asking, by: str, *, since_s: float | None, namespace: str | None
) -> dict[str | None, float]:
    """By group, where anything was saved. None by provider: no provider did that work."""
    if by == "provider":
        return {}
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    sql = SAVED.format(key=BY.get(by, "label"), joined="" if label is None else LABELED)
    return dict(asking.ask(sql, (since_s, label, namespace)).rows)


def estimated(asking: Asking, by: str, namespace: str | None = None) -> dict[str | None, Estimated]:
    """By group, of objects that have run and have an estimate. None by provider: an estimate is of
    a whole object, wherever that runs.
    """
    if by == "provider":
        return {}
    key = BY.get(by, "json_extract(labels, '$.\"' || ?1 || '\"')")
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    rows = asking.ask(ESTIMATES.format(key=key), (label, namespace)).rows
    return {key: Estimated(*sums) for key, *sums in rows}


def _row(
    group: Spent, estimates: dict[str | None, Estimated], savings: dict[str | None, float]
) -> dict[str, Any]:
    found = estimates.get(group.key, Estimated(None, None, None))
    figures = group._asdict()
    del figures["unpriced_warm"]  # said apart
    row = {**figures, "estimate": found.usd, "error": found.error}
    return {**row, "saved_usd": savings.get(group.key, 0.0)} if savings else row


def _total(
    groups: Sequence[Spent],
    estimates: dict[str | None, Estimated],
    savings: dict[str | None, float],
) -> dict[str, Any]:
    sums: dict[str, Any] = {"key": "TOTAL"}
    if savings:
        sums["saved_usd"] = sum(savings.values())
    for name in ("objects", "attempts", "seconds", "usd", "failed_usd", "unpriced", "deleted"):
        sums[name] = _sum(getattr(group, name) for group in groups)
    if not estimates:
        return sums
    whole = Estimated(*(_sum(column) for column in zip(*estimates.values(), strict=True)))
    return {**sums, "estimate": whole.usd, "error": whole.error}


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _columns(
    by: str, estimates: dict[str | None, Estimated], savings: dict[str | None, float]
) -> list[GridColumn]:
    title = (by.removeprefix(LABEL) if by.startswith(LABEL) else BY[by]).upper()
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
