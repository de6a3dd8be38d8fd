"""What the units of an object submitted, a row for every one that has run, by index."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fleetctl.views.objects import View, mapping, parsed
from fleetctl.views.reading import Reading
from fleetctl.views.tasks import Task


def result_rows(seen: View, reading: Reading) -> Iterator[dict[str, object]]:
    """Rows of tasks that the newest spec has; those of a larger, older one are left out."""
    name = metric_name(seen)
    total = seen.status.get("total") if seen.current else None
    told = "unwantedIndexes" in seen.status  # not by a controller of an older version
    for one in reading.tasks(seen, results=True):
        if not told and isinstance(total, int) and one.run.index >= total:
            return
        if not one.wanted and seen.current:
            continue
        row = _row(one)
        if name:
            value = _score(row["result"], name)
            if value is None:
                value = reading.last_metric(one.run.name, name)
            row["metric"] = None if value is None else {"name": name, "value": value}
        yield row


def metric_name(seen: View) -> str:
    """The metric that a sweep searches by; empty for other kinds."""
    return str(seen.map("metric").get("name") or "")


def _score(result: object, name: str) -> float | None:
    """`name` in the result, as a field or else as a dotted path: what the sweep itself goes by."""
    value: object = mapping(result).get(name)
    if value is None:
        value = result
        for part in name.split("."):
            value = mapping(value).get(part)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _row(one: Task) -> dict[str, object]:
    return {
        "index": one.run.index,
        "params": parsed(one.run.params),
        "state": one.state,
        "attempts": one.attempts,
        "content": one.run.content or None,
        "outdated": one.outdated,
        "result": None if one.result is None else json.loads(one.result),
    }
