"""From how long work took to what more of it costs. Pure.

What nobody knows stays unknown: an unknown price or duration makes no figure smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.common.text import HOUR_S

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long one unit takes, in seconds. None: not known; then `most_s` may still bound it.

    basis: a phrase on where the figures come from.
    """

    low_s: float | None
    middle_s: float | None
    high_s: float | None
    most_s: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class Cost:
    """USD. expected None: not known. high None: nothing bounds it. at_most: high is a bound by
    limits, not a figure from experience.
    """

    low: float
    expected: float | None
    high: float | None
    at_most: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.low + other.low,
            _sum(self.expected, other.expected),
            _sum(self.high, other.high),
            self.at_most or other.at_most,
        )

    @property
    def known(self) -> bool:
        return self.expected is not None


def per_hour(usd_per_s: float | None) -> float | None:
    return None if usd_per_s is None else usd_per_s * HOUR_S


FREE = Cost(0.0, 0.0, 0.0)
UNKNOWN = Cost(0.0, None, None)


def lasting(
    past_s: Sequence[float],
    *,
    basis: str,
    timeout_s: float | None,
    after_s: float = 0.0,
    attempts: int,
    unit: str,
) -> Lasting:
    """From past durations; without any, from the limit of one attempt times the attempts.

    after_s: from the limit to the end of the bill: the grace, and what the provider rounds up to.
    """
    if past_s:
        ordered = sorted(past_s)
        low, middle, high = (_quantile(ordered, share) for share in (LOW, MIDDLE, HIGH))
        return Lasting(low, middle, high, None, basis)
    if timeout_s is None:
        return Lasting(None, None, None, None, f"no past {unit}s and no timeoutSeconds")
    tries = f", {attempts} attempts each" if attempts > 1 else ""
    grace = f" and {after_s:g} s to end" if after_s else ""
    basis = f"no past {unit}s; timeoutSeconds {timeout_s:g}{grace}{tries}"
    return Lasting(None, None, None, (timeout_s + after_s) * attempts, basis)


def cost(
    units: int | None,
    lasts: Lasting,
    usd_per_s: float | None,
    *,
    least_usd_per_s: float | None = None,
) -> Cost:
    """What so many units cost; units None = nobody knows how many. least_usd_per_s: where the
    price is the most of several, the least of them; how likely each is, nobody knows.
    """
    if units == 0 or usd_per_s == 0:
        return FREE
    if units is None or usd_per_s is None:
        return UNKNOWN
    rate = units * usd_per_s
    if lasts.middle_s is not None and lasts.low_s is not None and lasts.high_s is not None:
        least = rate if least_usd_per_s is None else units * least_usd_per_s
        return Cost(least * lasts.low_s, rate * lasts.middle_s, rate * lasts.high_s)
    most = None if lasts.most_s is None else rate * lasts.most_s
    return Cost(0.0, None, most, at_most=most is not None)


def whole_s(units: int | None, at_once: int, lasts: Lasting) -> float | None:
    """Seconds until all are done, wave by wave: by what is likely, else at most; None = unknown."""
    each_s = lasts.most_s if lasts.middle_s is None else lasts.middle_s
    if units is None or each_s is None or not at_once:
        return None
    return math.ceil(units / at_once) * each_s


def shared_out(units: int, slots: Sequence[int]) -> list[int]:
    """How many units each place takes, best first: the best fill up, and what is more than all
    slots follows in proportion to them.
    """
    total = sum(slots)
    if units > total:
        shares = [units * room // total if total else 0 for room in slots]
        first = next((at for at, room in enumerate(slots) if room), None)
        if first is not None:
            shares[first] += units - sum(shares)
        return shares
    taken: list[int] = []
    for room in slots:
        taken.append(min(units - sum(taken), room))
    return taken


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest, as most statistics programs have it."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
