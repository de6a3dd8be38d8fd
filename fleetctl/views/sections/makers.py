"""Texts on the kinds that make objects, Source and Schedule: cells of their lists, and their lines
in `describe`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.common.text import and_more, count_noun, escape_line, format_age, format_timestamp
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import StoreReading

if TYPE_CHECKING:
    from fleetctl.views.objects import View


COMMIT_CHARS = 7

RUNS_SHOWN_MAX = 5


def url_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(as_mapping(seen.spec().get("git")).get("url") or "-"))


def ref_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(as_mapping(seen.spec().get("git")).get("ref") or "HEAD"))


def revision_cell(seen: View, _now_s: float) -> str:
    return seen.text("appliedRevision")[:COMMIT_CHARS] or "-"


def objects_cell(seen: View, _now_s: float) -> str:
    if seen.text("appliedRevision"):
        return str(seen.count("objects"))
    return "-"


def drift_cell(seen: View, _now_s: float) -> str:
    found = _list_drift(seen)
    if found:
        return str(len(found))
    return "-"


def applied_cell(seen: View, now_s: float) -> str:
    """Returns how long ago the commit was applied that its objects are equal to."""
    at_s = seen.time_s("appliedAt")
    if at_s is None:
        return "-"
    return f"{format_age(now_s - at_s)} ago"


def source_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line."""
    for label, revision, at_s in (
        ("Applied", seen.text("appliedRevision"), seen.time_s("appliedAt")),
        ("Attempted", seen.text("attemptedRevision"), seen.time_s("attemptedAt")),
    ):
        if revision and at_s is not None:
            yield label, f"{revision} {format_timestamp(at_s)}{_describe_commit(seen, revision)}"
    changed = as_mapping(seen.status.get("changed"))
    counts = ", ".join(f"{count} {word}" for word, count in changed.items() if count)
    if changed:
        yield "Changed", counts or "nothing"
    yield "Objects", str(seen.count("objects"))
    if left := seen.count("unpruned"):
        yield "Not pruned", f"{count_noun(left, 'object')} without a manifest; `prune` is false"
    if since_s := seen.time_s("failingSince"):
        yield "Fails since", format_timestamp(since_s)


def _describe_commit(seen: View, revision: str) -> str:
    """Returns ` by Ana: Train longer`; empty for a commit of which neither is known."""
    rows = seen.status.get("revisions")
    for row in map(as_mapping, rows) if isinstance(rows, list) else ():
        if row.get("revision") == revision:
            return f" by {row.get('author')}: {row.get('subject')}"
    return ""


def _list_drift(seen: View) -> list[str]:
    found = seen.status.get("drift")
    if isinstance(found, list):
        return [str(it) for it in found]
    return []


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
