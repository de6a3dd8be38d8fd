"""What the units of an object submitted, a row for every one that has run, by index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite

from fleetctl.controllers.history.metrics.front import Front
from fleetctl.controllers.trials.scores import signed
from fleetctl.views.objects import SUCCEEDED, View, mapping, parsed
from fleetctl.views.reading import Reading
from fleetctl.views.tasks import CACHED, Task, wandb_run


def result_rows(seen: View, reading: Reading) -> Iterator[dict[str, object]]:
    """Rows of tasks that the newest spec has; those of a larger, older one are left out."""
    names = metric_names(seen)
    total = seen.status.get("total") if seen.current else None
    listed = "unwantedIndexes" in seen.status  # not by a controller of an older version
    for one in reading.tasks(seen, results=True):
        if not listed and isinstance(total, int) and one.run.index >= total:
            return
        if not one.wanted and seen.current:
            continue
        row = _row(one)
        if place := wandb_run(one, seen):
            row["wandb"] = place
        values = {name: _value(one, row, name, reading) for name in names}
        if len(names) == 1:
            (name,) = names
            known = values[name]
            row["metric"] = None if known is None else {"name": name, "value": known}
        elif names:
            row["metrics"] = values
        yield row


def metric_goals(seen: View) -> list[tuple[str, str]]:
    """(name, goal) of what a sweep searches by: of its one metric, or of several; empty else."""
    several = seen.status.get("metrics")
    found = several if isinstance(several, list) else [seen.map("metric")]
    parts = [mapping(it) for it in found]
    return [(str(it["name"]), str(it.get("goal"))) for it in parts if it.get("name")]


def metric_names(seen: View) -> list[str]:
    return [name for name, _ in metric_goals(seen)]


def metric_values(row: Mapping[str, object]) -> Mapping[str, object]:
    """What a row has of the metrics, by name; None where it has none."""
    metric = mapping(row.get("metric"))
    return {str(metric["name"]): metric["value"]} if metric else mapping(row.get("metrics"))


def front_of(rows: Iterable[Mapping[str, object]], goals: Sequence[tuple[str, str]]) -> list[int]:
    """Indexes of the trials that no other one beats, the best in the first metric first: of those
    that succeeded under the present spec with a number for each.
    """
    front = Front()
    for row in rows:
        values = [metric_values(row).get(name) for name, _ in goals]
        numbers = [it for it in values if isinstance(it, (int, float)) and isfinite(it)]
        counts = row["state"] in (SUCCEEDED, CACHED) and not row["outdated"]
        if counts and len(numbers) == len(goals):
            pairs = zip(numbers, goals, strict=True)
            front.add(int(str(row["index"])), tuple(signed(it, goal) for it, (_, goal) in pairs))
    return [index for index, _ in front]


def _value(one: Task, row: Mapping[str, object], name: str, reading: Reading) -> float | None:
    value = _score(row["result"], name)
    return reading.last_metric(one.run.name, name) if value is None else value


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
