"""A single parameter's share in the differences between trials. Pure, deterministic.

The method is the rank-based eta squared of Kruskal and Wallis, (H - k + 1) / (n - k) for n trials
in k groups, as M. Tomczak and E. Tomczak give it ("The need to report effect size estimates
revisited", Trends in Sport Sciences 1(21), 2014), never below 0: the share of the variance of the
scores' ranks that lies between the groups, less the share that chance alone puts there. The groups
are the words of a parameter, or equally many of the trials by a parameter's value. Ranks, so that
one diverged trial does not decide it; groups, so that a best value in the middle is found as well
as one at an end. Like a main effect of fANOVA (Hutter, Hoos and Leyton-Brown, ICML 2014) it ignores
the joint effect of two parameters. H itself is compared with chi squared (Wilson and Hilferty's
approximation), so that an effect within chance is marked as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fleetctl.views.plotting.trials import MAXIMIZE, Study, Value, collect_columns

# Below, chance moves the figure by more than most parameters do: with ten trials another parameter
# than the decisive one came out on top, from sixteen on it was right.
TRIALS_MIN = 16
GROUPS_MAX = 6
PER_GROUP_MIN = 4
FREE_MIN = 4  # trials more than groups
CHANCE_Z = 1.645  # 1 in 20
TREND_MIN = 0.3  # of Spearman's rank correlation; less is not direction to speak of


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
