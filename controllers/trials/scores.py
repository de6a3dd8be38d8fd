"""The value of a trial, by which trials are compared. Pure; called by sweep.py."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from fleetctl.controllers.history.metrics.front import Values


def score_of(result: str | None, metrics: Mapping[str, float], name: str) -> float | None:
    """The metric `name`: from the result (a JSON object), else the last value that was reported;
    None where neither has a finite number.
    """
    value = None if result is None else _lookup(json.loads(result), name)
    if not _finite(value):
        value = metrics.get(name)
    return float(value) if _finite(value) else None  # type: ignore[arg-type]


def scores_of(
    result: str | None, metrics: Mapping[str, float], goals: Sequence[tuple[str, str]]
) -> Values | None:
    """The same of several, (name, goal) each; lower is better. None where one is missing."""
    found = [score_of(result, metrics, name) for name, _ in goals]
    values = [it for it in found if it is not None]
    if len(values) < len(goals):
        return None
    return tuple(signed(it, goal) for it, (_, goal) in zip(values, goals, strict=True))


def signed(value: float, goal: str) -> float:
    """So that lower is better, and back."""
    return -value if goal == "maximize" else value


def _lookup(result: object, name: str) -> object:
    """`name` as a field of the result, or else as a dotted path into it."""
    if not isinstance(result, dict):
        return None
    if name in result:
        return result[name]
    value: object = result
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
