"""What screens tell of a Source: cells of its list, and its lines in `describe`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.common.text import age, and_more, plural, safe, timestamp
from fleetctl.views.objects import mapping

if TYPE_CHECKING:
    from fleetctl.views.objects import View

COMMIT_CHARS = 7
DRIFT_SHOWN_MAX = 5


def url_cell(seen: View, _now_s: float) -> str:
    return safe(str(mapping(seen.spec().get("git")).get("url") or "-"))


def ref_cell(seen: View, _now_s: float) -> str:
    return safe(str(mapping(seen.spec().get("git")).get("ref") or "HEAD"))


def revision_cell(seen: View, _now_s: float) -> str:
    return seen.text("appliedRevision")[:COMMIT_CHARS] or "-"


def objects_cell(seen: View, _now_s: float) -> str:
    return str(seen.count("objects")) if seen.text("appliedRevision") else "-"


def drift_cell(seen: View, _now_s: float) -> str:
    found = _drift(seen)
    return str(len(found)) if found else "-"


def applied_cell(seen: View, now_s: float) -> str:
    """How long ago the commit was applied that its objects are equal to."""
    at_s = seen.time_s("appliedAt")
    return "-" if at_s is None else f"{age(now_s - at_s)} ago"


def source_lines(seen: View, _now_s: float) -> Iterator[tuple[str, str]]:
    """(label, text) of each line."""
    for label, revision, at_s in (
        ("Applied", seen.text("appliedRevision"), seen.time_s("appliedAt")),
        ("Attempted", seen.text("attemptedRevision"), seen.time_s("attemptedAt")),
    ):
        if revision and at_s is not None:
            yield label, f"{revision} {timestamp(at_s)}"
    changed = mapping(seen.status.get("changed"))
    counts = ", ".join(f"{count} {word}" for word, count in changed.items() if count)
    if changed:
        yield "Changed", counts or "nothing"
    yield "Objects", str(seen.count("objects"))
    if left := seen.count("unpruned"):
        yield "Not pruned", f"{plural(left, 'object')} without a manifest; `prune` is false"
    if found := _drift(seen):
        yield "By hand", and_more([safe(it) for it in found], most=DRIFT_SHOWN_MAX)
    if since_s := seen.time_s("failingSince"):
        yield "Fails since", timestamp(since_s)


def _drift(seen: View) -> list[str]:
    found = seen.status.get("drift")
    return [str(it) for it in found] if isinstance(found, list) else []
