"""Tasks, events and the results of units as documents and rows: the output of `-o json`, of
`results`, and what the server sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import NotRequired, TypedDict

from fleetctl.common.text import format_timestamp
from fleetctl.controllers.history.scores import ParetoFront, sign_value
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.views.objects import SUCCEEDED, View, as_mapping, parse_document
from fleetctl.views.store_reading import EventView, StoreReading
from fleetctl.views.tasks import CACHED, Task, task_usd, wandb_run


class TaskCost(TypedDict):
    actual: float | None  # USD


class TaskStatus(TypedDict):
    """The status of a task or an attempt."""

    phase: str
    reason: str
    message: str
    hint: str
    attempts: int
    exitCode: int | None
    provider: str
    sandbox: str | None
    whyThere: str
    machine: NotRequired[str]
    wanted: NotRequired[bool]
    outdated: NotRequired[bool]
    durationSeconds: NotRequired[float]
    startTime: NotRequired[str]
    completionTime: NotRequired[str]
    wandb: NotRequired[Mapping[str, object] | str]
    cost: NotRequired[TaskCost]


class TaskMetadata(TypedDict):
    name: str
    owner: str
    index: int
    attempt: int
    creationTimestamp: NotRequired[str]


class TaskSpec(TypedDict):
    params: Mapping[str, object]


class TaskDocument(TypedDict):
    """A task, or an attempt, as an object of its own."""

    apiVersion: str
    kind: str
    metadata: TaskMetadata
    spec: TaskSpec
    status: TaskStatus


class EventDocument(TypedDict):
    """An event. object: the key of its object, uid: that object's."""

    type: str
    reason: str
    object: str
    uid: str
    message: str
    hint: str
    count: int
    lastTimestamp: str
    deletedAt: str | None


class MetricValue(TypedDict):
    name: str
    value: float | None


class ResultDocument(TypedDict):
    """The result of a task. metric: of a sweep with one, metrics: with several."""

    index: int
    params: Mapping[str, object]
    state: str
    attempts: int
    content: str | None
    outdated: bool
    result: object
    wandb: NotRequired[Mapping[str, object] | str]
    metric: NotRequired[MetricValue | None]
    metrics: NotRequired[Mapping[str, float | None]]


def task_document(
    one: Task,
    seen: View,
    now_s: float,
) -> TaskDocument:
    """Returns a task, or an attempt, as an object of its own."""
    run = one.run
    status: TaskStatus = {
        "phase": one.state, "reason": one.reason, "message": run.message, "hint": run.hint,
        "attempts": one.attempts,
        "exitCode": run.exit_code, "provider": run.provider, "sandbox": run.sandbox,
        "whyThere": run.placed,
    }  # fmt: skip
    if one.machine.name:
        status["machine"] = one.machine.name
    if not one.wanted:
        status["wanted"] = False
    if one.outdated:
        status["outdated"] = True
    if one.run.started_at_s is not None:
        spent_s = now_s - one.run.started_at_s if one.duration_s is None else one.duration_s
        status["durationSeconds"] = round(max(0.0, spent_s), 3)
        status["startTime"] = format_timestamp(one.run.started_at_s)
    if run.ended_at_s is not None:
        status["completionTime"] = format_timestamp(run.ended_at_s)
    if place := wandb_run(one, seen):
        status["wandb"] = place
    spent = task_usd(one, now_s) if one.begun else None
    status["cost"] = {"actual": None if spent is None else round(spent, 6)}
    metadata: TaskMetadata = {
        "name": run.name, "owner": seen.key, "index": run.index, "attempt": run.attempt,
    }  # fmt: skip
    if one.begun:
        metadata["creationTimestamp"] = format_timestamp(run.created_at_s)
    return {
        "apiVersion": API_VERSION,
        "kind": "Task",
        "metadata": metadata,
        "spec": {"params": parse_document(run.params)},
        "status": status,
    }


def event_document(event: EventView) -> EventDocument:
    row = event.line
    gone_at_s = event.gone_at_s
    return {
        "type": row.kind,
        "reason": row.reason,
        "object": event.key,
        "uid": row.uid,
        "message": row.message,
        "hint": row.hint or "",
        "count": row.count,
        "lastTimestamp": format_timestamp(row.at_s),
        "deletedAt": None if gone_at_s is None else format_timestamp(gone_at_s),
    }


def result_rows(
    seen: View,
    reading: StoreReading,
    *,
    begin: int = 0,
) -> Iterator[ResultDocument]:
    """Yields rows of tasks that the newest spec has, from an index on; those of a larger, older one
    are left out."""
    names = metric_names(seen)
    total = seen.status.get("total") if seen.current else None
    listed = "unwantedIndexes" in seen.status  # not by a controller of an older version
    for one in reading.tasks(seen, results=True, begin=begin):
        if not listed and isinstance(total, int) and one.run.index >= total:
            return
        if not one.wanted and seen.current:
            continue
        row = _build_row(one)
        if place := wandb_run(one, seen):
            row["wandb"] = place
        values = {name: _find_value(one, row, name, reading) for name in names}
        if len(names) == 1:
            (name,) = names
            known = values[name]
            row["metric"] = None if known is None else {"name": name, "value": known}
        elif names:
            row["metrics"] = values
        yield row


def metric_goals(seen: View) -> list[tuple[str, str]]:
    """Returns (name, goal) of a sweep's metrics: of its only one, or of several; empty else."""
    several = seen.status.get("metrics")
    found = several if isinstance(several, list) else [seen.map("metric")]
    parts = [as_mapping(it) for it in found]
    return [(str(it["name"]), str(it.get("goal"))) for it in parts if it.get("name")]


def metric_names(seen: View) -> list[str]:
    return [name for name, _ in metric_goals(seen)]


def metric_values(row: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the metrics of a row, by name; None for a missing one."""
    metric = as_mapping(row.get("metric"))
    if metric:
        return {str(metric["name"]): metric["value"]}
    return as_mapping(row.get("metrics"))


def front_of(rows: Iterable[Mapping[str, object]], goals: Sequence[tuple[str, str]]) -> list[int]:
    """Returns indexes of the trials that no other one beats, the best in the first metric first:
    from those that succeeded under the present spec with a number for each metric.
    """
    front = ParetoFront()
    for row in rows:
        values = [metric_values(row).get(name) for name, _ in goals]
        numbers = [it for it in values if isinstance(it, (int, float)) and isfinite(it)]
        counts = row["state"] in (SUCCEEDED, CACHED) and not row["outdated"]
        if counts and len(numbers) == len(goals):
            pairs = zip(numbers, goals, strict=True)
            front.add(
                int(str(row["index"])), tuple(sign_value(it, goal) for it, (_, goal) in pairs)
            )
    return [index for index, _ in front]


def _find_value(
    one: Task,
    row: Mapping[str, object],
    name: str,
    reading: StoreReading,
) -> float | None:
    value = _read_score(row["result"], name)
    if value is None:
        return reading.last_metric(one.run.name, name)
    return value


def _read_score(result: object, name: str) -> float | None:
    """Returns `name` in the result, as a field or else as a dotted path: the value that the sweep
    itself compares."""
    value: object = as_mapping(result).get(name)
    if value is None:
        value = result
        for part in name.split("."):
            value = as_mapping(value).get(part)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return None


def _build_row(one: Task) -> ResultDocument:
    return {
        "index": one.run.index,
        "params": parse_document(one.run.params),
        "state": one.state,
        "attempts": one.attempts,
        "content": one.run.content or None,
        "outdated": one.outdated,
        "result": None if one.result is None else json.loads(one.result),
    }
