"""The finished trials of a sweep as plots need them, and a single parameter's share in the
differences between them. Pure, deterministic.

The method is the rank-based eta squared of Kruskal and Wallis, (H - k + 1) / (n - k) for n trials
in k groups, as M. Tomczak and E. Tomczak give it ("The need to report effect size estimates
revisited", Trends in Sport Sciences 1(21), 2014), never below 0: the share of the variance of the
scores' ranks that lies between the groups, less the share that chance alone puts there. The
groups are the words of a parameter, or equally many of the trials by a parameter's value. Ranks,
so that one diverged trial does not decide it; groups, so that a best value in the middle is found
as well as one at an end. Like a main effect of fANOVA (Hutter, Hoos and Leyton-Brown, ICML 2014)
it ignores the joint effect of two parameters. H itself is compared with chi squared (Wilson and
Hilferty's approximation), so that an effect within chance is marked as such.
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

# Below, chance moves the figure by more than most parameters do: with ten trials another parameter
# than the decisive one came out on top, from sixteen on it was right.
TRIALS_MIN = 16
GROUPS_MAX = 6
PER_GROUP_MIN = 4
FREE_MIN = 4  # trials more than groups
CHANCE_Z = 1.645  # 1 in 20
TREND_MIN = 0.3  # of Spearman's rank correlation; less is not direction to speak of


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


class ParameterImportance(NamedTuple):
    """One parameter's importance. share: from 0 to 1; None = unknown, for too many words, or trials
    without it. trend: Spearman's correlation with a good score, for numbers only.
    """

    name: str
    share: float | None
    chance: bool  # within chance: as likely as not no effect at all
    trend: float | None

    @property
    def remark(self) -> str:
        if self.share is None:
            return "too few trials of each value"
        if self.chance:
            return "within chance"
        if self.trend is None or abs(self.trend) < TREND_MIN:
            return ""
        if self.trend > 0:
            return "higher is better"
        return "lower is better"


def compute_importances(study: Study) -> list[ParameterImportance]:
    """Returns the most important first; empty below TRIALS_MIN, where importance is unknown."""
    scored = study.scored
    if len(scored) < TRIALS_MIN:
        return []
    sign = 1.0 if study.goal == MAXIMIZE else -1.0
    scores = [sign * score for _, score in scored]
    found = [
        _compute_importance(name, v, scores)
        for name, v in collect_columns([one for one, _ in scored]).items()
    ]
    return sorted(found, key=lambda one: (-(one.share if one.share is not None else -1), one.name))


def _compute_importance(
    name: str,
    values: Sequence[Value | None],
    scores: Sequence[float],
) -> ParameterImportance:
    pairs = [(v, s) for v, s in zip(values, scores, strict=True) if v is not None]
    ranks = compute_ranks([score for _, score in pairs])
    numbers = [v for v, _ in pairs if not isinstance(v, str)]
    groups = _group_ranks([value for value, _ in pairs], ranks)
    free = len(pairs) - len(groups)
    if len(pairs) < TRIALS_MIN or len(groups) < 2 or free < FREE_MIN:
        return ParameterImportance(name, None, chance=True, trend=None)
    h = _compute_kruskal_h(list(groups.values()), ranks)
    share = min(1.0, max(0.0, (h - len(groups) + 1) / free))
    trend = (
        _compute_correlation(compute_ranks(numbers), ranks) if len(numbers) == len(pairs) else None
    )
    return ParameterImportance(
        name, share, chance=_compute_z_score(h, len(groups) - 1) < CHANCE_Z, trend=trend
    )


def compute_ranks(values: Sequence[float]) -> list[float]:
    """Returns ranks from 1; equals share the middle of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for place in order[at : end + 1]:
            ranks[place] = (at + end) / 2 + 1
        at = end + 1
    return ranks


def _group_ranks(values: Sequence[Value], ranks: Sequence[float]) -> Mapping[Value, list[float]]:
    """Returns the ranks by word; for numbers by value while these are few, else by equal parts."""
    numbers = [value for value in values if not isinstance(value, str)]
    keys: Sequence[Value] = values
    if len(numbers) == len(values) and len(set(numbers)) > GROUPS_MAX:
        count = max(2, min(GROUPS_MAX, len(values) // PER_GROUP_MIN))
        # By rank, so that equal numbers are in one group.
        keys = [float(int((r - 0.5) * count / len(values))) for r in compute_ranks(numbers)]
    groups: dict[Value, list[float]] = {}
    for key, rank in zip(keys, ranks, strict=True):
        groups.setdefault(key, []).append(rank)
    return groups


def _compute_kruskal_h(groups: Sequence[Sequence[float]], ranks: Sequence[float]) -> float:
    """Returns Kruskal and Wallis' H, corrected for ties: 0 when all scores are equal."""
    count = len(ranks)
    middle = (len(ranks) + 1) / 2
    whole = sum((rank - middle) ** 2 for rank in ranks)
    if not whole:
        return 0.0
    between = sum(len(g) * (sum(g) / len(g) - middle) ** 2 for g in groups)
    return (count - 1) * between / whole


def _compute_z_score(h: float, free: int) -> float:
    """Returns the standard deviations by which H is above chance."""
    spread = 2 / (9 * free)
    return float(((h / free) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def _compute_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    middle = (len(a) + 1) / 2
    both = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    spread = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    if spread:
        return both / math.sqrt(spread)
    return 0.0
