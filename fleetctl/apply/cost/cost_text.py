"""Costs in words, for the plan and the reply to an apply. Pure."""

from __future__ import annotations

from fleetctl.apply.cost.caps import OWN
from fleetctl.apply.cost.estimate import Cost
from fleetctl.common.text import count_noun, format_duration, format_money

UNKNOWN = "unknown"


def describe_warm(
    containers: int,
    least_usd_per_h: float | None,
    usd_per_h: float | None,
) -> str:
    """Returns `$63.20/h while it exists: 2 containers stay warm`; the bound of a list of GPUs."""
    rate = UNKNOWN if usd_per_h is None else f"{format_hourly(least_usd_per_h, usd_per_h)}/h"
    many = "1 container stays" if containers == 1 else f"{containers:,} containers stay"
    return f"{rate} while it exists: {many} warm, whether or not anything runs"


def describe_on_demand(
    containers: int,
    least_usd_per_h: float | None,
    usd_per_h: float | None,
    idle_s: float,
) -> str:
    """Returns `$0.84/h while it is asked, and 60s after: at most 1 container`."""
    rate = UNKNOWN if usd_per_h is None else f"{format_hourly(least_usd_per_h, usd_per_h)}/h"
    many = count_noun(containers, "container")
    return f"{rate} while it is asked, and {format_duration(idle_s)} after: at most {many}"


def format_cost(cost: Cost) -> str:
    """Returns the likely figure, or the bound, or the word for unknown."""
    if cost.expected is not None:
        return format_money(cost.expected)
    if cost.high is None:
        return UNKNOWN
    return f"at most {format_money(cost.high)}"


def format_with_range(cost: Cost) -> str:
    """Returns the figure with its range; for an unknown one the lower bound where that is above
    zero."""
    if cost.expected is None:
        least = f", at least {format_money(cost.low)}" if cost.low else ""
        return format_cost(cost) + least
    if format_range(cost):
        return f"{format_money(cost.expected)} ({format_range(cost)})"
    return format_money(cost.expected)


def format_range(cost: Cost) -> str:
    """Returns `range $4.80-$8.90`, or empty without a range."""
    if cost.expected is None or cost.high is None or cost.high == cost.low:
        return ""
    return f"range {format_money(cost.low)}-{format_money(cost.high)}"


def format_hourly(least_usd: float | None, most_usd: float) -> str:
    """Returns a rate; both in USD an hour."""
    several = least_usd is not None and least_usd < most_usd
    least = f"{format_money(least_usd)}-" if several and least_usd is not None else ""
    return least + format_money(most_usd)


def format_cap(
    owner: str,
    max_usd: float,
    used_usd: float,
) -> str:
    """Returns the object's own cap, such as `cap $25.00`, else the rest of a Budget."""
    if owner == OWN:
        return f"cap {format_money(max_usd)}"
    return f"{owner} {format_money(max(0.0, max_usd - used_usd))} left"
