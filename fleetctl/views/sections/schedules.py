"""Texts on a schedule: cells of its list, and its lines in `describe`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.common.text import and_more, count_noun, escape_line, format_age, format_timestamp
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import StoreReading

if TYPE_CHECKING:
    from fleetctl.views.objects import View

RUNS_SHOWN_MAX = 5


def line_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("schedule") or "-"))


def zone_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("timeZone") or "UTC"))


def suspend_cell(seen: View, _now_s: float) -> str:
    return str(bool(seen.spec().get("suspend")))


def last_cell(seen: View, now_s: float) -> str:
    """Returns the age of the last moment that it made an object for."""
    last_s = seen.time_s("lastScheduleTime")
    if last_s is None:
        return "-"
    return f"{format_age(now_s - last_s)} ago"


def next_cell(seen: View, now_s: float) -> str:
    next_s = seen.time_s("nextScheduleTime")
    if next_s is None or seen.spec().get("suspend"):
        return "-"
    if next_s > now_s:
        return f"in {format_age(next_s - now_s)}"
    return "now"


def schedule_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line."""
    template = as_mapping(seen.spec().get("template"))
    yield "Makes", str(template.get("kind") or "")
    found = seen.status.get("activeRuns")
    runs = [str(it) for it in found] if isinstance(found, list) else []
    yield "Active", and_more(runs, most=RUNS_SHOWN_MAX) if runs else "none"
    for label, at_s in (
        ("Last", seen.time_s("lastScheduleTime")),
        ("Succeeded", seen.time_s("lastSuccessfulTime")),
        ("Next", seen.time_s("nextScheduleTime")),
    ):
        if at_s is not None:
            yield label, format_timestamp(at_s)
    if missed := seen.count("missed"):
        yield "Missed", count_noun(missed, "run")
