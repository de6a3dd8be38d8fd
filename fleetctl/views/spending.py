"""Queries the costs of past and present work, by object, kind, provider or label."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fleetctl.common.clock import Deadline, SystemClock
from fleetctl.common.remote import REMOTE
from fleetctl.stores.read.query import SqlQuery
from fleetctl.views.selectors import is_label
from fleetctl.views.tasks import ended_state

BY = {"job": "object", "kind": "kind", "provider": "provider"}
LABEL = "label="
USER = "user"
GROUPINGS = f"{', '.join(BY)}, {USER}, {LABEL}KEY"
TIMEOUT_S = 10.0
# An attempt counts by the share that lies after the first parameter (seconds since the epoch; NULL
# takes all), and so do the warm containers of a Function. Unknown costs are counted apart, for they
# are not zero.
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


APPLIED = "JOIN (SELECT uid, applied_by AS label FROM objects) USING (uid)"


# The error of an estimate is known only for a finished object with a known price.
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


# The savings: the cost of each run whose result was reused instead of doing its work again.
SAVED = """
SELECT {key}, sum(saved_usd) FROM reuses {joined}
WHERE (?1 IS NULL OR strftime('%s', at) >= ?1) AND (?3 IS NULL OR reuses.namespace = ?3)
GROUP BY 1 HAVING sum(saved_usd) > 0
"""


# The price of live attempts an hour, as far as known; those without a price; and how many live.
LIVE = """
SELECT coalesce(sum(usd_per_h), 0.0), count(*) - count(usd_per_h), count(*) FROM attempts
WHERE state IN ('Starting', 'Running', 'Stopping') AND (?1 IS NULL OR namespace = ?1)
"""


class LiveSpend(NamedTuple):
    """The spend of live attempts. usd_per_h: of those with a known price."""

    usd_per_h: float
    unpriced: int
    attempts: int


class GroupEstimate(NamedTuple):
    """One group in USD: the estimates of all, those of finished objects, and the cost of the
    latter."""

    usd: float | None
    over_usd: float | None
    actual_usd: float | None

    @property
    def error(self) -> float | None:
        """Returns the relative error, such as 0.18: it cost 18 % more than estimated."""
        if self.actual_usd is None or not self.over_usd:
            return None
        return self.actual_usd / self.over_usd - 1


class GroupCost(NamedTuple):
    """One group. usd: of the attempts with a known price."""

    key: str | None
    objects: int
    attempts: int
    seconds: float | None
    usd: float | None
    failed_usd: float | None
    unpriced: int
    unpriced_warm: int  # Functions whose warm containers have an unknown price
    deleted: int  # objects of the group that are gone


def is_grouping(text: str) -> bool:
    """Returns whether costs can be grouped by this."""
    return text in BY or text == USER or (text.startswith(LABEL) and is_label(text[len(LABEL) :]))


def open_asking(
    place: Path,
    *,
    timeout_s: float | None = TIMEOUT_S,
    namespace: str | None = None,
) -> SqlQuery:
    """Opens the store as SQL views; of a server's, where the process works with one. namespace:
    the one whose rows there are; None for all.
    """
    if (remote := REMOTE.get()) is not None:
        queries: SqlQuery = remote.sql(timeout_s)
        return queries
    deadline = Deadline(timeout_s)
    return SqlQuery(
        place,
        now_s=SystemClock().now_s(),
        task_state=ended_state,
        over=lambda: deadline.passed,
        namespace=namespace,
    )


def query_spent(
    asking: SqlQuery,
    by: str,
    *,
    since_s: float | None,
    namespace: str | None = None,
) -> list[GroupCost]:
    """Returns the cheapest first, so that the most expensive stands next to the prompt."""
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    sql = ATTEMPTS.format(key=BY.get(by, "label"), joined=_choose_join(by))
    return [GroupCost(*row) for row in asking.ask(sql, (since_s, label, namespace)).rows]


def query_live(asking: SqlQuery, namespace: str | None) -> LiveSpend:
    """Returns the spend of a namespace's live attempts; None: of all namespaces."""
    return LiveSpend(*next(asking.ask(LIVE, (namespace,)).rows))


def query_saved(
    asking: SqlQuery,
    by: str,
    *,
    since_s: float | None,
    namespace: str | None,
) -> dict[str | None, float]:
    """Returns savings by group, where there are any. Empty when grouped by provider: no provider
    did that work."""
    if by == "provider":
        return {}
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    sql = SAVED.format(key=BY.get(by, "label"), joined=_choose_join(by))
    return dict(asking.ask(sql, (since_s, label, namespace)).rows)


def query_estimates(
    asking: SqlQuery,
    by: str,
    namespace: str | None = None,
) -> dict[str | None, GroupEstimate]:
    """Returns estimates by group, for objects that have run. Empty when grouped by provider: an
    estimate is of a whole object, on any provider.
    """
    if by == "provider":
        return {}
    label_key = "json_extract(labels, '$.\"' || ?1 || '\"')"
    key = "applied_by" if by == USER else BY.get(by, label_key)
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    rows = asking.ask(ESTIMATES.format(key=key), (label, namespace)).rows
    return {key: GroupEstimate(*sums) for key, *sums in rows}


def _choose_join(by: str) -> str:
    """Returns the join that gives each row its `label`; "" for a column that it has."""
    if by == USER:
        return APPLIED
    return LABELED if by.startswith(LABEL) else ""
