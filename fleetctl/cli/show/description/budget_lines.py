"""What `describe budget/x` tells of money: how much is used, set aside and left, and until when."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import plural, timestamp, usd
from fleetctl.views.objects import View


def budget_lines(seen: View) -> Iterator[tuple[str, str]]:
    """(label, text); nothing before a controller has counted."""
    status = seen.status
    most, used, left = (_number(status.get(key)) for key in ("maxCost", "used", "left"))
    if most is None or used is None or left is None:
        return
    reserved = _number(status.get("reserved"))
    yield "Used", f"{usd(used)} of {usd(most)} by runs that are over"
    endless = "no limit: a live run has no timeoutSeconds; set template.timeoutSeconds"
    yield "Reserved", endless if reserved is None else f"{usd(reserved)} at worst by live runs"
    until_s = _number(status.get("until"))
    yield "Left", usd(left) + (f" until {timestamp(until_s)}" if until_s is not None else "")
    unpriced_s = _number(status.get("unpricedSeconds"))
    if unpriced_s:
        seconds = plural(round(unpriced_s), "second")
        yield "Unpriced", f"{seconds} of runs, counted at the price of what would start"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
