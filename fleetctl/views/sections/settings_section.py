"""Texts on the settings: the size of each sort of stored data, and the state of backups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.common.text import (
    byte_size,
    count_noun,
    escape_line,
    format_age,
    format_scalar,
    format_timestamp,
)
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import StoreReading

if TYPE_CHECKING:
    from fleetctl.views.objects import View


def schedule_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(as_mapping(seen.spec().get("backup")).get("schedule") or "")) or "-"


def last_cell(seen: View, now_s: float) -> str:
    """Returns the age of the newest backup."""
    last_s = _read_time(seen, "lastSuccessfulTime")
    if last_s is None:
        return "-"
    return f"{format_age(max(0.0, now_s - last_s))} ago"


def next_cell(seen: View, now_s: float) -> str:
    next_s = _read_time(seen, "nextTime")
    if next_s is None:
        return "-"
    if next_s > now_s:
        return f"in {format_age(next_s - now_s)}"
    return "now"


def settings_lines(
    seen: View,
    _reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line."""
    yield from _list_limits(seen)
    yield from _describe_kept(seen)
    said = as_mapping(seen.spec().get("backup"))
    if not said:
        yield "Backup", "none; `backup: {schedule, to}` makes them"
        return
    zone = str(said.get("timeZone") or "UTC")
    most = format_scalar(said.get("keep", 14))
    yield "Backup", f"{said.get('schedule')} {zone} to {said.get('to')}, the last {most} stay"
    kept = seen.map("backup")
    if (last_s := _read_time(seen, "lastSuccessfulTime")) is not None:
        size = kept.get("bytes")
        shown = f", {byte_size(size)}" if isinstance(size, int) else ""
        yield "Last", f"{format_timestamp(last_s)}: {kept.get('file')}{shown}"
    failed_s = _read_time(seen, "lastFailureTime")
    failures = kept.get("failures")
    if failed_s is not None and isinstance(failures, int) and failures:
        yield "Failed", f"{format_timestamp(failed_s)}, {count_noun(failures, 'time')} in a row"
    if (next_s := _read_time(seen, "nextTime")) is not None:
        yield "Next", format_timestamp(next_s) if next_s > now_s else "now"


def _list_limits(seen: View) -> Iterator[tuple[str, str]]:
    said = as_mapping(seen.spec().get("retention"))
    for sort, limit in said.items():
        fields = " ".join(
            f"{key}={_format_amount(key, it)}" for key, it in as_mapping(limit).items()
        )
        if fields:
            yield "Limit", f"{sort}: {fields}"


def _format_amount(key: str, value: object) -> str:
    if key == "maxAge" and isinstance(value, (int, float)):
        return format_age(value)
    if key == "maxSize" and isinstance(value, int):
        return byte_size(value)
    return format_scalar(value)


def _describe_kept(seen: View) -> Iterator[tuple[str, str]]:
    found = seen.status.get("retained")
    rows = [as_mapping(it) for it in found] if isinstance(found, list) else []
    total = sum(size for it in rows if isinstance(size := it.get("bytes"), int))
    if rows:
        yield (
            "Kept",
            f"{byte_size(total)} of finished work; `fleetctl gc --dry-run` lists it",
        )


def _read_time(seen: View, key: str) -> float | None:
    value = seen.map("backup").get(key)
    if isinstance(value, (int, float)):
        return float(value)
    return None
