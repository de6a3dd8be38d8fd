"""Estimates the cost of further work from the duration of past work. Pure.

Unknown figures stay unknown: an unknown price or duration makes no figure smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.common.text import HOUR_S, format_money

NOT_KNOWN = "unknown"  # an unknown figure, in words
LOW = 0.1
MIDDLE = 0.5
HIGH = 0.9


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """A unit's duration, in seconds; None where unknown, and `most_s` may still bound the duration.

    basis: a phrase on the source of the figures.
    """

    low_s: float | None
    middle_s: float | None
    high_s: float | None
    most_s: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost in USD. expected None: unknown. high None: unbounded. at_most: high is a bound by
    limits, not a figure from experience.
    """

    low: float
    expected: float | None
    high: float | None
    at_most: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.low + other.low,
            _add_known(self.expected, other.expected),
            _add_known(self.high, other.high),
            self.at_most or other.at_most,
        )

    def __str__(self) -> str:
        """Returns the likely figure, or the bound, or the word for unknown."""
        if self.expected is not None:
            return format_money(self.expected)
        if self.high is None:
            return NOT_KNOWN
        return f"at most {format_money(self.high)}"

    @property
    def range(self) -> str:
        """Returns `range $4.80-$8.90`, or empty without a range."""
        if self.expected is None or self.high is None or self.high == self.low:
            return ""
        return f"range {format_money(self.low)}-{format_money(self.high)}"

    @property
    def with_range(self) -> str:
        """Returns the figure with its range; for an unknown one the lower bound where that is above
        zero."""
        if self.expected is None and self.low:
            return f"{self}, at least {format_money(self.low)}"
        return f"{self} ({self.range})" if self.range else str(self)


def per_hour(usd_per_s: float | None) -> float | None:
    if usd_per_s is None:
        return None
    return usd_per_s * HOUR_S


def format_hourly(least_usd_per_s: float | None, usd_per_s: float | None) -> str:
    """Returns the price of an hour: `$31.61`, and `$0.60-$31.61` for a list of GPUs."""
    if usd_per_s is None:
        return NOT_KNOWN
    most = format_money(usd_per_s * HOUR_S)
    if least_usd_per_s is None or least_usd_per_s >= usd_per_s:
        return most
    return f"{format_money(least_usd_per_s * HOUR_S)}-{most}"


FREE = Cost(0.0, 0.0, 0.0)
UNKNOWN = Cost(0.0, None, None)


def estimate_duration(
    past_s: Sequence[float],
    *,
    basis: str,
    timeout_s: float | None,
    after_s: float = 0.0,
    attempts: int,
    unit: str,
) -> DurationEstimate:
    """Estimates a duration from past ones; without any, from an attempt's limit times the attempts.

    after_s: seconds from the limit to the end of the bill: the grace, and the rounding of the
    provider.
    """
    if past_s:
        ordered = sorted(past_s)
        low, middle, high = (_interpolate_quantile(ordered, share) for share in (LOW, MIDDLE, HIGH))
        return DurationEstimate(
            low,
            middle,
            high,
            None,
            basis,
        )
    if timeout_s is None:
        return DurationEstimate(
            None,
            None,
            None,
            None,
            f"no past {unit}s and no timeoutSeconds",
        )
    tries = f", {attempts} attempts each" if attempts > 1 else ""
    grace = f" and {after_s:g} s to end" if after_s else ""
    basis = f"no past {unit}s; timeoutSeconds {timeout_s:g}{grace}{tries}"
    return DurationEstimate(
        None,
        None,
        None,
        (timeout_s + after_s) * attempts,
        basis,
    )


def estimate_cost(
    units: int | None,
    lasts: DurationEstimate,
    usd_per_s: float | None,
    *,
    least_usd_per_s: float | None = None,
) -> Cost:
    """Returns the cost of `units` units; units None = unknown number. least_usd_per_s: the lowest
    of several possible prices; the probability of each price is unknown.
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


def whole_s(
    units: int | None,
    at_once: int,
    lasts: DurationEstimate,
) -> float | None:
    """Returns the seconds until all units are finished, wave by wave: likely, else at most; None =
    unknown."""
    each_s = lasts.most_s if lasts.middle_s is None else lasts.middle_s
    if units is None or each_s is None or not at_once:
        return None
    return math.ceil(units / at_once) * each_s


def shared_out(units: int, slots: Sequence[int]) -> list[int]:
    """Returns the number of units for each provider, best first: the best fill up, and units beyond
    all slots follow in proportion to the slots.
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


def _interpolate_quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolates between the two nearest values, as most statistics programs do."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _add_known(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return None
    return one + other
