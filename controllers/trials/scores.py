"""The value of a trial, by which trials are compared. Pure; called by sweep.py."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from fleetctl.controllers.history.metrics.front import Values


def score_of(
    result: str | None,
    metrics: Mapping[str, float],
    name: str,
) -> float | None:
    """Returns the metric `name`: from the result (a JSON object), else the last reported value;
    None where neither has a finite number.
    """
    value = None if result is None else _lookup_field(json.loads(result), name)
    if not _is_finite(value):
        value = metrics.get(name)
    return float(value) if _is_finite(value) else None


def scores_of(
    result: str | None,
    metrics: Mapping[str, float],
    goals: Sequence[tuple[str, str]],
) -> Values | None:
    """Returns the scores of several metrics, (name, goal) each; lower is better. None where one is
    missing.
    """
    found = [score_of(result, metrics, name) for name, _ in goals]
    values = [it for it in found if it is not None]
    if len(values) < len(goals):
        return None
    return tuple(sign_value(it, goal) for it, (_, goal) in zip(values, goals, strict=True))


def sign_value(value: float, goal: str) -> float:
    """Returns the value with the sign that makes lower better, and back."""
    if goal == "maximize":
        return -value
    return value


def _lookup_field(result: object, name: str) -> object:
    """Looks `name` up as a field of the result, or else as a dotted path into it."""
    if not isinstance(result, dict):
        return None
    if name in result:
        return result[name]
    value: object = result
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _is_finite(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
