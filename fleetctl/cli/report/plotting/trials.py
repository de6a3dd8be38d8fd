"""The finished trials of a sweep as pictures need them: parameters in one layer, a finite score.

Called by gather with the rows that `fleetctl results` shows. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.report.plotting.scales import WORD_CHARS_MAX, number
from fleetctl.common.text import safe, shorten

MAXIMIZE = "maximize"

Value = float | str  # what a parameter is on an axis


class Trial(NamedTuple):
    """A trial that succeeded; `params` are named as `net.depth`, a list is its JSON."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    ended_at_s: float
    params: Mapping[str, Value]
    score: float | None  # None = it reported no finite number


class Study(NamedTuple):
    """metric: empty when the search names none. logs: parameters that are drawn logarithmically;
    evens: those that are drawn evenly.
    """

    metric: str
    goal: str
    trials: tuple[Trial, ...]
    logs: frozenset[str] = frozenset()
    evens: frozenset[str] = frozenset()

    @property
    def scored(self) -> list[tuple[Trial, float]]:
        """In the order in which they ended."""
        found = [(one, one.score) for one in self.trials if one.score is not None]
        return sorted(found, key=lambda pair: (pair[0].ended_at_s, pair[0].index))

    @property
    def ranked(self) -> list[tuple[Trial, float]]:
        """Best first, the earliest index of equals first, as the sweep itself decides."""
        sign = -1.0 if self.goal == MAXIMIZE else 1.0
        return sorted(self.scored, key=lambda pair: (sign * pair[1], pair[0].index))


def trial(index: int, ended_at_s: float, params: Mapping[str, object], score: object) -> Trial:
    finite = isinstance(score, (int, float)) and math.isfinite(score)
    return Trial(index, ended_at_s, dict(_flat(params, "")), float(score) if finite else None)  # type: ignore[arg-type]


def columns(trials: Sequence[Trial]) -> dict[str, list[Value | None]]:
    """The values of each parameter that varies, by trial; numbers where all that there are, are.

    None where a trial has no such parameter.
    """
    names = dict.fromkeys(name for one in trials for name in one.params)
    found: dict[str, list[Value | None]] = {}
    for name in names:
        values = [one.params.get(name) for one in trials]
        there = [value for value in values if value is not None]
        if any(isinstance(value, str) for value in there):
            values = [None if v is None else v if isinstance(v, str) else number(v) for v in values]
        if len({value for value in values if value is not None}) > 1:
            found[name] = values
    return found


def constants(trials: Sequence[Trial]) -> list[str]:
    """`batch=64`, of what has the same value in all trials that have it."""
    varying = columns(trials)
    fixed = {name: v for one in trials for name, v in one.params.items() if name not in varying}
    return [f"{name}={v if isinstance(v, str) else number(v)}" for name, v in fixed.items()]


def words(params: Mapping[str, Value]) -> str:
    """`lr=0.01 net.depth=3`"""
    texts = (f"{name}={v if isinstance(v, str) else number(v)}" for name, v in params.items())
    return " ".join(texts)


def _flat(params: Mapping[str, object], above: str) -> Iterable[tuple[str, Value]]:
    for name, value in params.items():
        full = safe(above + name)
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            plain = _float(value)
            yield full, plain if plain is not None else str(value)
        elif isinstance(value, str):
            yield full, shorten(safe(value), WORD_CHARS_MAX) or '""'
        else:
            yield full, shorten(safe(json.dumps(value)), WORD_CHARS_MAX)


def _float(value: float) -> float | None:
    """None for what no axis has a place for: not a number, infinite, or an int beyond floats."""
    try:
        plain = float(value)
    except OverflowError:
        return None
    return plain if math.isfinite(plain) else None
