"""What `describe function/x` tells of money: what its warm containers cost an hour and by now."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import HOUR_S, plural, usd
from fleetctl.views.objects import View


def function_lines(seen: View, now_s: float) -> Iterator[tuple[str, str]]:
    """(label, text); nothing of one that keeps and kept nothing warm, or nothing that costs."""
    warm, cost = seen.map("warm"), seen.map("cost")
    rate, since_s = _number(warm.get("usdPerSecond")), _number(warm.get("since"))
    spent = _number(cost.get("actual")) or 0.0
    if warm and rate is not None and since_s is not None:
        spent += rate * max(0.0, now_s - since_s)
    parts = [f"{usd(spent)} {'so far' if warm else 'spent'}"] if spent else []
    if warning := seen.text("warning"):
        yield "Warning", f"a container did not become ready: {warning}"
    if url := seen.text("url"):
        yield "URL", url
    serves = "port" in seen.spec()
    if serves and not warm:
        yield "Containers", "asleep: the next call of its Endpoint starts one"
    if warm and serves:
        each = "an unknown price" if rate is None else f"{usd(rate * HOUR_S)}/h"
        count = int(_number(warm.get("containers")) or 0)
        parts.append(f"{each} now: {plural(count, 'container')}")
    elif warm:
        each = "an unknown price" if rate is None else f"{usd(rate * HOUR_S)}/h"
        count = int(_number(warm.get("containers")) or 0)
        stays = "stays" if count == 1 else "stay"
        many = f"{plural(count, 'container')} {stays} warm, whether or not anything runs"
        parts.append(f"{each} while it exists: {many}")
    if parts:
        yield "Cost", ", ".join(parts)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
