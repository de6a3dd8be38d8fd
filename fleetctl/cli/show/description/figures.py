"""Where an object's work runs, what it costs and how long it takes: the figures of `describe`.

Called by describe with what the status says and what the rows add to it: live runs, which no status
has the cost of, and how long tasks took. Pure but for reading; what nobody knows is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.common.text import age, duration, plural, safe, usd
from fleetctl.views.objects import View, mapping
from fleetctl.views.reading import Reading

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import LivePrices

# Of fewer tasks the middle one says little about the rest.
SAMPLES_MIN = 3
QUEUED_S_MIN = 1.0  # less is how it should be


def cost_line(seen: View, live: LivePrices) -> str:
    """`$4.02 so far, $6.10 estimated, $25.00 cap, $20.98 left, burn $5.10/h`; runs without a known
    price are told apart.
    """
    cost, budget = seen.map("cost"), seen.map("budget")
    ended = _number(cost.get("actual"))
    unpriced = _whole(cost.get("unpricedRuns")) + live.unpriced
    parts = []
    if ended + live.usd:
        parts.append(
            f"{usd(ended + live.usd)} {'so far' if live.runs or not seen.over else 'spent'}"
        )
    if calls := _number(cost.get("calls")):
        parts.append(f"{usd(calls)} of it for model calls")
    if estimate := _estimate(cost):
        parts.append(f"{estimate} estimated")
    if most := _number(budget.get("maxCost")):
        parts.append(f"{usd(most)} cap, {usd(_number(budget.get('left')))} left")
    if live.usd_per_h:
        parts.append(f"burn {usd(live.usd_per_h)}/h")
    if reserved := _number(cost.get("reserved")):
        parts.append(f"{usd(reserved)} set aside for what runs")
    line = [", ".join(parts)] if parts else []
    if unpriced:
        line.append(f"{plural(unpriced, 'run')} without a known price")
    return " and ".join(line)


def _estimate(cost: Mapping[str, object]) -> str:
    expected, high = cost.get("estimated"), cost.get("estimatedHigh")
    if isinstance(expected, (int, float)):
        return usd(expected)
    return f"at most {usd(high)}" if isinstance(high, (int, float)) else ""


def attempts_line(seen: View) -> str:
    """`66: 4 failed, 3 ended by the infrastructure, not counted`; nothing where all went well."""
    places = seen.status.get("placement")
    totals = [_whole(mapping(it).get("total")) for it in places] if isinstance(places, list) else []
    infra, lasting = seen.count("infraFailures"), seen.count("failed")
    failed = seen.count("retries") + lasting - infra  # as History.retries is reckoned
    parts = [f"{failed} failed"] if failed > 0 else []
    if infra:
        parts.append(f"{infra} ended by the infrastructure, not counted")
    if not parts:
        return ""
    return f"{sum(totals)}: {', '.join(parts)}" if sum(totals) else ", ".join(parts)


def where_line(seen: View) -> str:
    """`modal 36 active of 120, local 8 active`: in the order of the placement."""
    live = seen.map("where")
    parts, named = [], set()
    places = seen.status.get("placement")
    for place in places if isinstance(places, list) else ():
        name = str(mapping(place).get("provider"))
        total, active = _whole(mapping(place).get("total")), _whole(live.get(name))
        named.add(name)
        if total > active:
            parts.append(f"{name} {active} active of {plural(total, 'run')}")
        elif active:
            parts.append(f"{name} {active} active")
    parts += [f"{name} {count} active" for name, count in live.items() if name not in named]
    return safe(", ".join(parts))


def timing_line(seen: View, reading: Reading, now_s: float) -> str:
    """`queued 2s, first result 1m04s, p50 task 3m12s, ETA 9m`."""
    begun, first = seen.status.get("startTime"), seen.status.get("firstResultTime")
    parts = []
    if isinstance(begun, (int, float)):
        queued_s = begun - seen.resource.created_at_s
        if queued_s >= QUEUED_S_MIN:
            parts.append(f"queued {duration(queued_s)}")
        if isinstance(first, (int, float)):
            parts.append(f"first result {duration(first - begun)}")
        elif not seen.over:
            parts.append(f"begun {age(now_s - begun)} ago")
    took = sorted(reading.durations(seen)) if seen.count("succeeded") else []
    if len(took) >= SAMPLES_MIN:
        parts.append(f"p50 {seen.kind.unit} {duration(middle(took))}")
        if left := eta_s(seen, took):
            parts.append(f"ETA {duration(left)}")
    return ", ".join(parts)


def middle(ascending: Sequence[float]) -> float:
    return ascending[(len(ascending) - 1) // 2]


def eta_s(seen: View, took: Sequence[float]) -> float | None:
    """What is left, at the mean of what tasks took and as many at a time as now. None when nothing
    runs, or when nobody knows how much there is: then there is no such time.
    """
    total, active = seen.status.get("total"), seen.count("active")
    if seen.over or not isinstance(total, int) or not active:
        return None
    left = total - seen.settled
    # Of those that run half is done, on average.
    return max(0.0, left - active / 2) * sum(took) / len(took) / active


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def usage_line(usage: Mapping[str, object]) -> str:
    """`8, 93 % busy, 488.1 of 640.0 GiB, 2.1 steps/s`, by the newest samples."""
    used, whole, speed = (
        it if isinstance(it := usage.get(key), (int, float)) else None
        for key in ("memoryMib", "memoryTotalMib", "stepsPerSecond")
    )
    parts = [str(usage.get("gpus")), f"{usage.get('gpuPercent')} % busy"]
    if used is not None and whole is not None:
        parts.append(f"{used / 1024:.1f} of {whole / 1024:.1f} GiB")
    if speed is not None:
        parts.append(f"{speed:.3g} steps/s")
    return safe(", ".join(parts))


def nodes_line(nodes: object) -> str:
    """`3: 2 Stopped, 1 Failed; node 1: Signal:KILL`, of the newest attempt."""
    parts = [mapping(it) for it in nodes] if isinstance(nodes, list) else []
    states = Counter(str(it.get("state")) for it in parts)
    failed = (
        f"node {rank}: {it['reason']}"
        for rank, it in enumerate(parts)
        if it.get("state") in ("Failed", "Lost") and it.get("reason")
    )
    first = next(failed, "")
    message = ", ".join(f"{count} {state}" for state, count in states.items())
    return safe(f"{len(parts)}: {message}" + (f"; {first}" if first else ""))
