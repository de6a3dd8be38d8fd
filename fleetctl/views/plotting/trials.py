"""The finished trials of a sweep as plots need them: parameters in one layer, a finite score.

Called by gather with the rows that `fleetctl results` shows. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.common.text import escape_line, shorten_text
from fleetctl.views.plotting.scales import WORD_CHARS_MAX, format_number

MAXIMIZE = "maximize"

Value = float | str  # the value of a parameter on an axis


class PlottedTrial(NamedTuple):
    """A trial that succeeded; `params` are named as `net.depth`, a list is its JSON."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    ended_at_s: float
    params: Mapping[str, Value]
    score: float | None  # None = it reported no finite number


class Study(NamedTuple):
    """The trials of a sweep. metric: empty when the search names no metric. logs: parameters on a
    logarithmic axis; evens: those on a linear one.
    """

    metric: str
    goal: str
    trials: tuple[PlottedTrial, ...]
    logs: frozenset[str] = frozenset()
    evens: frozenset[str] = frozenset()

    @property
    def scored(self) -> list[tuple[PlottedTrial, float]]:
        """Returns the trials with a score, in the order in which they ended."""
        found = [(one, one.score) for one in self.trials if one.score is not None]
        return sorted(found, key=lambda pair: (pair[0].ended_at_s, pair[0].index))

    @property
    def ranked(self) -> list[tuple[PlottedTrial, float]]:
        """Returns the best first, the earliest index of equals first, as the sweep itself
        decides."""
        sign = -1.0 if self.goal == MAXIMIZE else 1.0
        return sorted(self.scored, key=lambda pair: (sign * pair[1], pair[0].index))


def build_trial(
    index: int,
    ended_at_s: float,
    params: Mapping[str, object],
    score: object,
) -> PlottedTrial:
    value = None
    if isinstance(score, (int, float)) and math.isfinite(score):
        value = float(score)
    return PlottedTrial(index, ended_at_s, dict(_flatten_params(params, "")), value)


def collect_columns(trials: Sequence[PlottedTrial]) -> dict[str, list[Value | None]]:
    """Returns the values of each parameter that varies, by trial; as numbers where all values are
    numbers.

    None where a trial has no such parameter.
    """
    names = dict.fromkeys(name for one in trials for name in one.params)
    found: dict[str, list[Value | None]] = {}
    for name in names:
        values = [one.params.get(name) for one in trials]
        there = [value for value in values if value is not None]
        if any(isinstance(value, str) for value in there):
            values = [
                None if v is None else v if isinstance(v, str) else format_number(v) for v in values
            ]
        if len({value for value in values if value is not None}) > 1:
            found[name] = values
    return found


def list_constants(trials: Sequence[PlottedTrial]) -> list[str]:
    """Returns `batch=64`, for parameters with the same value in all trials that have them."""
    varying = collect_columns(trials)
    fixed = {name: v for one in trials for name, v in one.params.items() if name not in varying}
    return [f"{name}={v if isinstance(v, str) else format_number(v)}" for name, v in fixed.items()]


def format_params(params: Mapping[str, Value]) -> str:
    """Returns `lr=0.01 net.depth=3`"""
    texts = (
        f"{name}={v if isinstance(v, str) else format_number(v)}" for name, v in params.items()
    )
    return " ".join(texts)


def _flatten_params(params: Mapping[str, object], above: str) -> Iterable[tuple[str, Value]]:
    for name, value in params.items():
        full = escape_line(above + name)
        if isinstance(value, dict) and value:
            yield from _flatten_params(value, f"{above}{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            plain = _parse_finite(value)
            yield full, plain if plain is not None else str(value)
        elif isinstance(value, str):
            yield full, shorten_text(escape_line(value), WORD_CHARS_MAX) or '""'
        else:
            yield full, shorten_text(escape_line(json.dumps(value)), WORD_CHARS_MAX)


def _parse_finite(value: float) -> float | None:
    """Returns None for a value that is on no axis: not a number, infinite, or an int beyond
    floats."""
    try:
        plain = float(value)
    except OverflowError:
        return None
    if math.isfinite(plain):
        return plain
    return None
