"""Costs in words, as the plan and an apply tell them. Pure."""

from __future__ import annotations

from fleetctl.apply.cost.estimate import Cost
from fleetctl.apply.cost.warm import Standing
from fleetctl.common.text import usd
from fleetctl.controllers.placement import HOUR_S

UNKNOWN = "unknown"


def stands(it: Standing) -> str:
    """`$63.20/h while it exists: 2 containers stay warm`; the bound of a list of GPUs."""
    rate = UNKNOWN if it.usd_per_s is None else f"{hourly(it.least_usd_per_s, it.usd_per_s)}/h"
    many = "1 container stays" if it.containers == 1 else f"{it.containers:,} containers stay"
    return f"{rate} while it exists: {many} warm, whether or not anything runs"


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


def hourly(least_usd_per_s: float | None, most_usd_per_s: float) -> str:
    several = least_usd_per_s is not None and least_usd_per_s < most_usd_per_s
    least = f"{usd(least_usd_per_s * HOUR_S)}-" if several and least_usd_per_s is not None else ""
    return least + usd(most_usd_per_s * HOUR_S)
