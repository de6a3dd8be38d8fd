"""Costs in words, as the plan and an apply tell them. Pure."""

from __future__ import annotations

from fleetctl.apply.cost.caps import OWN
from fleetctl.apply.cost.estimate import Cost
from fleetctl.common.text import duration, plural, usd

UNKNOWN = "unknown"


def stands(containers: int, least_usd_per_h: float | None, usd_per_h: float | None) -> str:
    """`$63.20/h while it exists: 2 containers stay warm`; the bound of a list of GPUs."""
    rate = UNKNOWN if usd_per_h is None else f"{hourly(least_usd_per_h, usd_per_h)}/h"
    many = "1 container stays" if containers == 1 else f"{containers:,} containers stay"
    return f"{rate} while it exists: {many} warm, whether or not anything runs"


def asked(
    containers: int, least_usd_per_h: float | None, usd_per_h: float | None, idle_s: float
) -> str:
    """`$0.84/h while it is asked, and 60s after: at most 1 container`."""
    rate = UNKNOWN if usd_per_h is None else f"{hourly(least_usd_per_h, usd_per_h)}/h"
    many = plural(containers, "container")
    return f"{rate} while it is asked, and {duration(idle_s)} after: at most {many}"


def figure(cost: Cost) -> str:
    """The likely figure, or the bound, or that nobody knows."""
    if cost.expected is not None:
        return usd(cost.expected)
    return UNKNOWN if cost.high is None else f"at most {usd(cost.high)}"


def ranged(cost: Cost) -> str:
    """With its range; of what nobody knows the least is told where it is more than nothing."""
    if cost.expected is None:
        least = f", at least {usd(cost.low)}" if cost.low else ""
        return figure(cost) + least
    return f"{usd(cost.expected)} ({span(cost)})" if span(cost) else usd(cost.expected)


def span(cost: Cost) -> str:
    """`range $4.80-$8.90`, or nothing where there is none."""
    if cost.expected is None or cost.high is None or cost.high == cost.low:
        return ""
    return f"range {usd(cost.low)}-{usd(cost.high)}"


def hourly(least_usd: float | None, most_usd: float) -> str:
    """Both USD an hour."""
    several = least_usd is not None and least_usd < most_usd
    least = f"{usd(least_usd)}-" if several and least_usd is not None else ""
    return least + usd(most_usd)


def short(owner: str, max_usd: float, used_usd: float) -> str:
    """`cap $25.00` of the object's own budget, else what is left of a Budget."""
    if owner == OWN:
        return f"cap {usd(max_usd)}"
    return f"{owner} {usd(max(0.0, max_usd - used_usd))} left"
