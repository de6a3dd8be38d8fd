"""Estimates the cost of an apply from the duration of past work, compares it with the budgets that
the work has to fit into, and reports and stores it when the apply is made.

Unknown figures stay unknown: an unknown price or duration makes no figure smaller. The usage of a
budget is counted by the controller and read from its status here, or taken from the spec alone
where the budget is new. Free work is not estimated, so that an apply of local work stays quick.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.common.text import HOUR_S, format_money
from fleetctl.controllers.budget import CostEstimate, format_usd, matches_labels
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.budget import BudgetSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.tracking.annotations import ESTIMATE

if TYPE_CHECKING:
    pass


NOT_KNOWN = "unknown"  # an unknown figure, in words
LOW = 0.1
MIDDLE = 0.5
HIGH = 0.9

OWN = "its budget"


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


def compute_per_hour(usd_per_s: float | None) -> float | None:
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


def share_units(units: int, slots: Sequence[int]) -> list[int]:
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


@dataclass(frozen=True, slots=True)
class BudgetCap:
    """One budget. owner: `its budget` or `budget/team`. high_usd: the most that this apply may
    cost; None = unknown."""

    owner: str
    max_usd: float
    used_usd: float
    expected_usd: float | None
    high_usd: float | None
    on_exceeded: str

    @property
    def sentence(self) -> str:
        known = f"{format_usd(self.used_usd)} of {format_usd(self.max_usd)} used"
        return f"{self.owner}: {known}, {self._rest()}"

    def _rest(self) -> str:
        left_usd = self.max_usd - self.used_usd
        if self.high_usd is not None and self.high_usd <= left_usd:
            return f"this apply fits (at most {format_usd(self.high_usd)})"
        left = f"{format_usd(max(0.0, left_usd))} left"
        then = {
            "Suspend": "it {} stop at the cap",
            "Cancel": "it {} fail at the cap",
            "Warn": "it {} go beyond the cap, with a warning",
        }[self.on_exceeded]
        may = then.format("may")
        will = then.format("will probably")
        if self.expected_usd is not None and self.expected_usd > left_usd:
            return f"about {format_usd(self.expected_usd)} against {left}: {will}"
        if self.high_usd is None:
            return f"nothing bounds this apply, {left}: {may}"
        likely = "" if self.expected_usd is None else f"probably {format_usd(self.expected_usd)}, "
        return f"{likely}at most {format_usd(self.high_usd)} against {left}: {may}"


def caps_of(
    desired: Resource,
    objects: Iterable[Resource],
    now: Cost,
    *,
    spent_usd: float,
) -> tuple[BudgetCap, ...]:
    """The object's own budget first, then the Budgets that select it."""
    return (*_list_own_caps(desired, now, spent_usd), *_list_shared_caps(desired, objects, now))


def _list_own_caps(
    desired: Resource,
    now: Cost,
    spent_usd: float,
) -> Iterator[BudgetCap]:
    own = json.loads(desired.spec).get("budget")
    if own:
        then = str(own.get("onExceeded", "Suspend"))
        yield BudgetCap(
            OWN,
            float(own["maxCost"]),
            spent_usd,
            now.expected,
            now.high,
            then,
        )


def _list_shared_caps(
    desired: Resource,
    objects: Iterable[Resource],
    now: Cost,
) -> Iterator[BudgetCap]:
    for budget in objects:
        if budget.kind != "Budget" or budget.namespace != desired.namespace:
            continue
        try:
            spec = parse_spec("Budget", budget.spec)
        except ValueError:
            continue  # the controller cannot read it either, and reports that in its status
        assert isinstance(spec, BudgetSpec)
        if matches_labels(spec.selector, desired.labels):
            used = json.loads(budget.status or "{}")
            used_usd = float(used.get("used") or 0.0) + float(used.get("reserved") or 0.0)
            most, then = spec.max_cost, spec.on_exceeded
            yield BudgetCap(
                budget.key,
                most,
                used_usd,
                now.expected,
                now.high,
                then,
            )


@dataclass(frozen=True, slots=True)
class CostForecast:
    """One forecast. estimate: of the object as a whole. planned: the same as `plan -o json` prints
    it."""

    estimate: CostEstimate
    planned: Mapping[str, object]


# Returns forecasts by the keys of objects. It reads the store itself, so it may be called in a
# thread.
Forecaster = Callable[[Sequence[Change]], Mapping[str, CostForecast]]


def note_estimates(
    changes: Sequence[Change], forecasts: Mapping[str, CostForecast]
) -> list[Change]:
    """Returns the changes with an estimate on each object whose spec is new; an old estimate does
    not hold for the new spec.
    """
    return [_note_estimate(change, forecasts.get(change.key)) for change in changes]


def _note_estimate(change: Change, forecast: CostForecast | None) -> Change:
    before = change.before
    after = change.after
    if change.outcome not in (CREATED, CONFIGURED) or (before and before.spec == after.spec):
        return change
    fields = {key: text for key, text in after.annotations.items() if key != ESTIMATE}
    if forecast is not None and forecast.estimate.known:
        fields[ESTIMATE] = forecast.estimate.note
    return replace(change, after=replace(after, annotations=fields))
