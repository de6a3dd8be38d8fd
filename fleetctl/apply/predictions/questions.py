"""Changes that need consent although no work or data is lost: far more work than a user is likely
to mean, and data that stays behind. Called by consent.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.registry import KINDS

# A file of rows may hold a million; a larger number is rather a slip of the pen.
UNITS_UNASKED_MAX = 1_000_000
_OF_TOTALS = ("tasks", "completions", "search", "trials")


def asked_about(change: Change) -> Iterator[tuple[str, str]]:
    """Yields the name in an approval, and a sentence."""
    if (question := _ask_about_count(change)) is not None:
        yield f"{change.key}#many", question
    if (question := _left_behind(change)) is not None:
        yield f"{change.key}#moves", question


def _ask_about_count(change: Change) -> str | None:
    count = change.impact.to_run if change.impact is not None else None
    if count is None or count <= UNITS_UNASKED_MAX:
        return None
    grown = any(field.path.startswith(_OF_TOTALS) for field in change.fields)
    if change.outcome != CREATED and not grown:
        return None  # they had consent when they were applied
    unit = KINDS[change.after.kind].unit
    return f"{change.key}: {count:,} {unit}s would run, more than {UNITS_UNASKED_MAX:,}"


def _left_behind(change: Change) -> str | None:
    before = change.before
    if change.after.kind != "Volume" or change.outcome != CONFIGURED or before is None:
        return None
    was = _read_provider(before.spec)
    will = _read_provider(change.after.spec)
    if was == will:
        return None
    return (
        f"{change.key}: its data stays on `{was}`, nothing of it is copied to `{will}`"
        f" (`fleetctl cp {change.key}:/ DIR` copies it here)"
    )


def _read_provider(spec: str) -> str:
    return str(json.loads(spec).get("provider") or DEFAULT_PROVIDER)
