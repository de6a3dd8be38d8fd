"""The rules of a policy, as cells of `get policies`, and the exemptions of objects.

Called by columns.py and by `describe`.
"""

from __future__ import annotations

from fleetctl.common.text import escape_line
from fleetctl.views.objects import View, as_mapping

PREFIX = "policy."  # of the annotation; without any, the reader of exemptions is not loaded


def _format_match(seen: View, field: str) -> str:
    found = as_mapping(seen.spec().get("match")).get(field)
    if isinstance(found, list) and found:
        return escape_line(",".join(map(str, found)))
    return "all"


def kinds_cell(seen: View, _now_s: float) -> str:
    return _format_match(seen, "kinds")


def namespaces_cell(seen: View, _now_s: float) -> str:
    return _format_match(seen, "namespaces")


def rules_cell(seen: View, _now_s: float) -> str:
    """Returns `3 deny, 1 warn`."""
    rules = seen.spec().get("rules")
    each = [as_mapping(it).get("action", "Deny") for it in rules] if isinstance(rules, list) else []
    counts = ((each.count("Deny"), "deny"), (each.count("Warn"), "warn"))
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "-"


def exempt_line(seen: View, now_s: float) -> str:
    """Returns `limits until 2026-12-31, because ...`; empty for an object without exemptions."""
    if not any(key.startswith(PREFIX) for key in seen.resource.annotations):
        return ""
    from fleetctl.specs.values.exempt import exemptions_of

    try:
        found = exemptions_of(seen.resource.annotations)
    except ValueError as error:
        return str(error)
    parts = []
    for name, it in found.items():
        ended = " (this has ended)" if it.over(now_s) else ""
        parts.append(f"policy/{name} {it.sentence}{ended}")
    return "; ".join(parts)
