"""The costs in `describe function/x`: warm containers per hour, and so far."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import HOUR_S, count_noun, format_money
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading


def function_lines(
    seen: View,
    _reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text); no line for one that never kept a container warm, or for free ones."""
    warm = seen.map("warm")
    cost = seen.map("cost")
    rate = _as_number(warm.get("usdPerSecond"))
    since_s = _as_number(warm.get("since"))
    spent = _as_number(cost.get("actual")) or 0.0
    if warm and rate is not None and since_s is not None:
        spent += rate * max(0.0, now_s - since_s)
    parts = [f"{format_money(spent)} {'so far' if warm else 'spent'}"] if spent else []
    if warning := seen.text("warning"):
        yield "Warning", f"a container did not become ready: {warning}"
    if url := seen.text("url"):
        yield "URL", url
    serves = "port" in seen.spec()
    if serves and not warm:
        yield "Containers", "asleep: the next call of its Endpoint starts one"
    if warm and serves:
        each = "an unknown price" if rate is None else f"{format_money(rate * HOUR_S)}/h"
        count = int(_as_number(warm.get("containers")) or 0)
        parts.append(f"{each} now: {count_noun(count, 'container')}")
    elif warm:
        each = "an unknown price" if rate is None else f"{format_money(rate * HOUR_S)}/h"
        count = int(_as_number(warm.get("containers")) or 0)
        stays = "stays" if count == 1 else "stay"
        many = f"{count_noun(count, 'container')} {stays} warm, whether or not anything runs"
        parts.append(f"{each} while it exists: {many}")
    if parts:
        yield "Cost", ", ".join(parts)


def _as_number(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    return None
