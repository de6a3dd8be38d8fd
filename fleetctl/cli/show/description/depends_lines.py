"""The dependencies of an object, a line each, for `describe`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import escape_line
from fleetctl.views.objects import View, as_mapping

SHOWN_MAX = 10
_WORDS = {
    "Succeeded": "must succeed",
    "Complete": "must succeed",
    "Failed": "must fail",
    "Finished": "must end",
}


def dependency_lines(seen: View) -> Iterator[str]:
    """Yields `batchjob/prep must succeed: Waiting`."""
    found = seen.status.get("dependencies")
    listed = [as_mapping(it) for it in found] if isinstance(found, list) else []
    for it in listed[:SHOWN_MAX]:
        condition = str(it.get("condition"))
        yield escape_line(f"{it.get('on')} {_WORDS.get(condition, condition)}: {it.get('state')}")
    if len(listed) > SHOWN_MAX:
        yield f"and {len(listed) - SHOWN_MAX} more"
