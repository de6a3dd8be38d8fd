"""The providers, cost and time of an object's work: the figures of `describe`.

Called by describe with the status and the facts that the rows add: live runs, whose cost is in no
status, and durations of tasks. Pure but for reading; unknown figures are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.common.text import count_noun, escape_line, format_age, format_duration, format_money
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.store_reading import StoreReading

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import LiveRunPrices

# With fewer tasks the median is no guide to the rest.
SAMPLES_MIN = 3
QUEUED_S_MIN = 1.0  # a shorter wait is normal


def cost_line(seen: View, live: LiveRunPrices) -> str:
    """Returns `$4.02 so far, $6.10 estimated, $25.00 cap, $20.98 left, burn $5.10/h`; runs without
    a known price are listed apart.
    """
    cost = seen.map("cost")
    budget = seen.map("budget")
    ended = _as_number(cost.get("actual"))
    unpriced = _as_whole(cost.get("unpricedRuns")) + live.unpriced
    parts = []
    if ended + live.usd:
        parts.append(
            f"{format_money(ended + live.usd)} "
            f"{'so far' if live.runs or not seen.over else 'spent'}"
        )
    if calls := _as_number(cost.get("calls")):
        parts.append(f"{format_money(calls)} of it for model calls")
    if estimate := _format_estimate(cost):
        parts.append(f"{estimate} estimated")
    if most := _as_number(budget.get("maxCost")):
        parts.append(
            f"{format_money(most)} cap, {format_money(_as_number(budget.get('left')))} left"
        )
    if live.usd_per_h:
        parts.append(f"burn {format_money(live.usd_per_h)}/h")
    if reserved := _as_number(cost.get("reserved")):
        parts.append(f"{format_money(reserved)} set aside for what runs")
    line = [", ".join(parts)] if parts else []
    if unpriced:
        line.append(f"{count_noun(unpriced, 'run')} without a known price")
    return " and ".join(line)


def _format_estimate(cost: Mapping[str, object]) -> str:
    expected = cost.get("estimated")
    high = cost.get("estimatedHigh")
    if isinstance(expected, (int, float)):
        return format_money(expected)
    if isinstance(high, (int, float)):
        return f"at most {format_money(high)}"
    return ""


def attempts_line(seen: View) -> str:
    """Returns `66: 4 failed, 3 ended by the infrastructure, not counted`; empty where all went
    well."""
    places = seen.status.get("placement")
    totals = (
        [_as_whole(as_mapping(it).get("total")) for it in places]
        if isinstance(places, list)
        else []
    )
    infra = seen.count("infraFailures")
    lasting = seen.count("failed")
    failed = seen.count("retries") + lasting - infra  # as History.retries is reckoned
    parts = [f"{failed} failed"] if failed > 0 else []
    if infra:
        parts.append(f"{infra} ended by the infrastructure, not counted")
    if not parts:
        return ""
    if sum(totals):
        return f"{sum(totals)}: {', '.join(parts)}"
    return ", ".join(parts)


def where_line(seen: View) -> str:
    """Returns `modal 36 active of 120, local 8 active`: in the order of the placement. Before
    anything runs the places where it may.
    """
    live = seen.map("where")
    parts = list[str]()
    named = list[str]()
    word = "starting" if seen.starting and not seen.active else "active"
    places = seen.status.get("placement")
    for place in places if isinstance(places, list) else ():
        name = str(as_mapping(place).get("provider"))
        total = _as_whole(as_mapping(place).get("total"))
        active = _as_whole(live.get(name))
        named.append(name)
        if total > active:
            parts.append(f"{name} {active} {word} of {count_noun(total, 'run')}")
        elif active:
            parts.append(f"{name} {active} {word}")
    parts += [f"{name} {count} {word}" for name, count in live.items() if name not in named]
    return escape_line(", ".join(parts or named))


def timing_line(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> str:
    """Returns `queued 2s, first result 1m04s, p50 task 3m12s, ETA 9m`."""
    begun = seen.status.get("startTime")
    first = seen.status.get("firstResultTime")
    parts = []
    if isinstance(begun, (int, float)):
        queued_s = begun - seen.resource.created_at_s
        if queued_s >= QUEUED_S_MIN:
            parts.append(f"queued {format_duration(queued_s)}")
        if isinstance(first, (int, float)):
            parts.append(f"first result {format_duration(first - begun)}")
        elif not seen.over:
            parts.append(f"begun {format_age(now_s - begun)} ago")
    took = sorted(reading.durations(seen)) if seen.count("succeeded") else []
    if len(took) >= SAMPLES_MIN:
        parts.append(f"p50 {seen.kind.unit} {format_duration(pick_median(took))}")
        if left := eta_s(seen, took):
            parts.append(f"ETA {format_duration(left)}")
    return ", ".join(parts)


def pick_median(ascending: Sequence[float]) -> float:
    return ascending[(len(ascending) - 1) // 2]


def eta_s(seen: View, took: Sequence[float]) -> float | None:
    """Returns the seconds left, at the mean duration of tasks and the present parallelism. None
    without running tasks, or with an unknown number of tasks.
    """
    total = seen.status.get("total")
    active = seen.count("active")
    if seen.over or not isinstance(total, int) or not active:
        return None
    left = total - seen.settled
    # A running task is half done, on average.
    return max(0.0, left - active / 2) * sum(took) / len(took) / active


def _as_number(value: object) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    return 0.0


def _as_whole(value: object) -> int:
    if isinstance(value, int):
        return value
    return 0


def usage_line(usage: Mapping[str, object]) -> str:
    """Returns `8, 93 % busy, 488.1 of 640.0 GiB, 2.1 steps/s`, by the newest samples."""
    used, whole, speed = (
        it if isinstance(it := usage.get(key), (int, float)) else None
        for key in ("memoryMib", "memoryTotalMib", "stepsPerSecond")
    )
    parts = [str(usage.get("gpus")), f"{usage.get('gpuPercent')} % busy"]
    if used is not None and whole is not None:
        parts.append(f"{used / 1024:.1f} of {whole / 1024:.1f} GiB")
    if speed is not None:
        parts.append(f"{speed:.3g} steps/s")
    return escape_line(", ".join(parts))


def nodes_line(nodes: object) -> str:
    """Returns `3: 2 Stopped, 1 Failed; node 1: Signal:KILL`, of the newest attempt."""
    parts = [as_mapping(it) for it in nodes] if isinstance(nodes, list) else []
    states = Counter(str(it.get("state")) for it in parts)
    failed = (
        f"node {rank}: {it['reason']}"
        for rank, it in enumerate(parts)
        if it.get("state") in ("Failed", "Lost") and it.get("reason")
    )
    first = next(failed, "")
    message = ", ".join(f"{count} {state}" for state, count in states.items())
    return escape_line(f"{len(parts)}: {message}" + (f"; {first}" if first else ""))
