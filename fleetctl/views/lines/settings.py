"""What screens show of the settings: what each sort of kept things takes, and how backups stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.common.text import age, byte_size, plural, safe, scalar, timestamp
from fleetctl.views.objects import mapping

if TYPE_CHECKING:
    from fleetctl.views.objects import View


def schedule_cell(seen: View, _now_s: float) -> str:
    return safe(str(mapping(seen.spec().get("backup")).get("schedule") or "")) or "-"


def last_cell(seen: View, now_s: float) -> str:
    """How long ago the newest backup was written."""
    last_s = _time(seen, "lastSuccessfulTime")
    return "-" if last_s is None else f"{age(max(0.0, now_s - last_s))} ago"


def next_cell(seen: View, now_s: float) -> str:
    next_s = _time(seen, "nextTime")
    if next_s is None:
        return "-"
    return f"in {age(next_s - now_s)}" if next_s > now_s else "now"


def settings_lines(seen: View, now_s: float) -> Iterator[tuple[str, str]]:
    """(label, text) of each line."""
    yield from _limits(seen)
    yield from _kept(seen)
    said = mapping(seen.spec().get("backup"))
    if not said:
        yield "Backup", "none; `backup: {schedule, to}` makes them"
        return
    zone = str(said.get("timeZone") or "UTC")
    most = scalar(said.get("keep", 14))
    yield "Backup", f"{said.get('schedule')} {zone} to {said.get('to')}, the last {most} stay"
    kept = seen.map("backup")
    if (last_s := _time(seen, "lastSuccessfulTime")) is not None:
        size = kept.get("bytes")
        shown = f", {byte_size(size)}" if isinstance(size, int) else ""
        yield "Last", f"{timestamp(last_s)}: {kept.get('file')}{shown}"
    failed_s, failures = _time(seen, "lastFailureTime"), kept.get("failures")
    if failed_s is not None and isinstance(failures, int) and failures:
        yield "Failed", f"{timestamp(failed_s)}, {plural(failures, 'time')} in a row"
    if (next_s := _time(seen, "nextTime")) is not None:
        yield "Next", timestamp(next_s) if next_s > now_s else "now"


def _limits(seen: View) -> Iterator[tuple[str, str]]:
    said = mapping(seen.spec().get("retention"))
    for sort, limit in said.items():
        fields = " ".join(f"{key}={_amount(key, it)}" for key, it in mapping(limit).items())
        if fields:
            yield "Limit", f"{sort}: {fields}"


def _amount(key: str, value: object) -> str:
    if key == "maxAge" and isinstance(value, (int, float)):
        return age(value)
    return byte_size(value) if key == "maxSize" and isinstance(value, int) else scalar(value)


def _kept(seen: View) -> Iterator[tuple[str, str]]:
    found = seen.status.get("retained")
    rows = [mapping(it) for it in found] if isinstance(found, list) else []
    total = sum(it["bytes"] for it in rows if isinstance(it.get("bytes"), int))  # type: ignore[misc]
    if rows:
        yield "Kept", f"{byte_size(total)} of what is over; `fleetctl gc --dry-run` has it by sort"


def _time(seen: View, key: str) -> float | None:
    value = seen.map("backup").get(key)
    return float(value) if isinstance(value, (int, float)) else None
