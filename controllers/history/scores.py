"""The value of a unit, by which trials are compared, and the Pareto front of units that have
several values each. Pure.

Updated as units end. With two values each costs O(log n) and the units it displaces; with more it
is compared with the members of the front that are better in the first value.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

Values = tuple[float, ...]  # the values of a unit, as many for each; lower is better


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


class ParetoFront:
    """Equal units are all on it."""

    def __init__(self) -> None:
        self._points: list[tuple[Values, int]] = []  # ascending: the best first value first

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[tuple[int, Values]]:
        """Yields (index, values), the best in the first value first."""
        return ((index, values) for values, index in self._points)

    def add(self, index: int, values: Values) -> None:
        """Adds a unit that was not added before."""
        points = self._points
        at = bisect_left(self._points, (values, index))
        # A better unit sorts before this one; with two values the nearest decides.
        first = at - 1 if len(values) == 2 else 0
        if any(_is_better(points[other][0], values) for other in range(max(first, 0), at)):
            return
        end = at
        if len(values) == 2:
            while end < len(points) and _is_better(values, points[end][0]):
                end += 1
            points[at:end] = [(values, index)]
        else:
            kept = [it for it in points[at:] if not _is_better(values, it[0])]
            points[at:] = [(values, index), *kept]


def _is_better(one: Values, other: Values) -> bool:
    """Returns true if one is as good in every value, and better in at least one."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
