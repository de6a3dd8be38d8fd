"""Which runs of a project a client wants: the filters that W&B's clients send, and their order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import Refused
from ..world.runs import Run
from ..world.state import World


def chosen(
    world: World, entity: str, project: str, filters: str | None, order: str | None
) -> Sequence[Run]:
    """filters: JSON, as `{"$and": [{"sweep": ID}]}`. Raises Refused where it is more than that."""
    wanted = json.loads(filters) if filters else {}
    runs = [one for one in world.runs.values() if (one.entity, one.project) == (entity, project)]
    found = [one for one in runs if _passes(world, one, wanted or {})]
    return _ordered(found, order) if order else found


def _passes(world: World, run: Run, wanted: Mapping[str, Any]) -> bool:
    return all(_holds(world, run, key, value) for key, value in wanted.items())


def _holds(world: World, run: Run, key: str, value: Any) -> bool:
    if key == "$and":
        return all(_passes(world, run, one) for one in value)
    if key == "$or":
        return any(_passes(world, run, one) for one in value)
    if key == "sweep":
        sweep = world.sweep(run.entity, run.project, run.sweep) if run.sweep else None
        actual = [] if sweep is None else [sweep.name, sweep.id]
        return any(one in actual for one in _values(value))
    if key in ("name", "state"):
        return getattr(run, key) in _values(value)
    raise Refused(400, f"unknown filter {key}")


def _values(value: Any) -> list[Any]:
    if not isinstance(value, Mapping):
        return [value]
    if set(value) != {"$in"}:
        raise Refused(400, f"unknown operator {sorted(value)[0]}")
    return list(value["$in"])


def _ordered(runs: Sequence[Run], order: str) -> Sequence[Run]:
    """By `+created_at`, `-heartbeat_at` or `+summary_metrics.NAME`; who has no value comes last."""
    descending, key = order.startswith("-"), order.lstrip("+-")
    if key in ("created_at", "createdAt"):
        return runs[::-1] if descending else runs
    if key in ("heartbeat_at", "heartbeatAt"):
        return sorted(runs, key=lambda one: one.heartbeat_s, reverse=descending)
    metric = key.removeprefix("summary_metrics.")
    with_value = [one for one in runs if one.value(metric) is not None]
    without = [one for one in runs if one.value(metric) is None]
    return [
        *sorted(with_value, key=lambda one: one.value(metric) or 0.0, reverse=descending),
        *without,
    ]
