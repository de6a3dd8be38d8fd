"""Writes the overview of a fleet as one HTML file: counts, what failed or waits and why, spend, and
a table of each kind. The page needs no server and no network, and runs no code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from fleetctl.common.text import format_money, format_timestamp
from fleetctl.controllers.planning.plan import Phase
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.query import SqlQuery
from fleetctl.views.columns import choose_columns, drop_empty_columns
from fleetctl.views.objects import View, explain_status, suggest_fix
from fleetctl.views.plotting.writers.svg import wrap_page
from fleetctl.views.spending import BY, query_live, query_spent
from fleetctl.views.store_reading import StoreReading

ROWS_MAX = 500  # of a kind, the newest; a browser shows no more of them at once
SPENT_S = 7 * 86_400.0
# What needs a person comes first.
PHASES = (
    Phase.FAILED, Phase.PENDING, Phase.RUNNING, Phase.SUSPENDED, Phase.DELETING, Phase.SKIPPED,
    Phase.READY, Phase.SUCCEEDED,
)  # fmt: skip


class OverviewTable(NamedTuple):
    """A table of the page. more: how many rows it leaves out."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: int = 0


def render_overview(
    reading: StoreReading,
    asking: SqlQuery,
    *,
    namespace: str | None,
    now_s: float,
) -> str:
    """Returns the page, of one namespace or (None) of all."""
    views = reading.views(namespace=namespace)
    where = "all namespaces" if namespace is None else f"namespace {namespace}"
    live = query_live(asking, namespace)
    summary = (
        f"{where}, {format_timestamp(now_s)}: {_count_phases(views)}; {live.attempts} attempts run"
        f" now, for {format_money(live.usd_per_h)} an hour"
    )
    tables = (
        _list_problems(views),
        _sum_spent(asking, namespace, now_s),
        *_list_kinds(views, now_s),
    )
    body = "".join(_render_table(table) for table in tables if table.rows)
    return wrap_page("fleetctl", summary, body)


def _count_phases(views: Sequence[View]) -> str:
    counts = Counter(seen.phase for seen in views)
    found = [f"{counts[phase]} {phase.lower()}" for phase in PHASES if counts[phase]]
    return ", ".join(found) or "nothing is stored"


def _list_problems(views: Sequence[View]) -> OverviewTable:
    """Returns the objects that failed, or wait for something, with the reason and the fix."""
    order = {str(phase): at for at, phase in enumerate(PHASES)}
    found = [
        (seen.key, seen.phase, why, suggest_fix(seen))
        for seen in sorted(views, key=lambda it: order.get(it.phase, len(order)))
        if (why := explain_status(seen))
    ]
    columns = ("OBJECT", "STATUS", "WHY", "FIX")
    return OverviewTable(
        "Failed, or waiting", columns, found[:ROWS_MAX], max(0, len(found) - ROWS_MAX)
    )


def _sum_spent(asking: SqlQuery, namespace: str | None, now_s: float) -> OverviewTable:
    groups = query_spent(asking, "provider", since_s=now_s - SPENT_S, namespace=namespace)
    rows = [
        (
            str(group.key),
            str(group.attempts),
            "unknown" if group.usd is None else format_money(group.usd),
            str(group.unpriced),
        )
        for group in reversed(groups)
    ]
    columns = (BY["provider"].upper(), "ATTEMPTS", "COST", "UNPRICED")
    return OverviewTable("Spent in the last 7 days", columns, rows)


def _list_kinds(views: Sequence[View], now_s: float) -> Iterator[OverviewTable]:
    for kind in KINDS.values():
        found = [seen for seen in reversed(views) if seen.kind.name == kind.name]
        columns = choose_columns(kind, wide=False)
        cells = [[column.cell(seen, now_s) for column in columns] for seen in found[:ROWS_MAX]]
        titles, rows = drop_empty_columns(columns, cells)
        namespaces = [seen.resource.namespace for seen in found[:ROWS_MAX]]
        if len(set(namespaces)) > 1:
            titles = ["NAMESPACE", *titles]
            rows = [[name, *row] for name, row in zip(namespaces, rows, strict=True)]
        yield OverviewTable(kind.plural.capitalize(), titles, rows, max(0, len(found) - ROWS_MAX))


def _render_table(table: OverviewTable) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in table.columns)
    lines = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    left_out = f"<p>{table.more:,} older ones are left out</p>\n" if table.more else ""
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="scroll" tabindex="0" role="region"'
        f' aria-label="{escape(table.title)}"><table>\n<tr>{head}</tr>\n{lines}\n</table></div>\n'
        f"{left_out}"
    )
