"""The amounts in `describe budget/x`: used, set aside and left, and until when."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import count_noun, format_money, format_timestamp
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading


def budget_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text); no line before a controller has counted."""
    status = seen.status
    most, used, left = (_as_number(status.get(key)) for key in ("maxCost", "used", "left"))
    if most is None or used is None or left is None:
        return
    reserved = _as_number(status.get("reserved"))
    yield "Used", f"{format_money(used)} of {format_money(most)} by runs that have ended"
    endless = "no limit: a live run has no timeoutSeconds; set template.timeoutSeconds"
    yield (
        "Reserved",
        endless if reserved is None else f"{format_money(reserved)} at worst by live runs",
    )
    until_s = _as_number(status.get("until"))
    yield (
        "Left",
        format_money(left) + (f" until {format_timestamp(until_s)}" if until_s is not None else ""),
    )
    unpriced_s = _as_number(status.get("unpricedSeconds"))
    if unpriced_s:
        seconds = count_noun(round(unpriced_s), "second")
        yield "Unpriced", f"{seconds} of runs, counted at the price of what would start"


def _as_number(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    return None
