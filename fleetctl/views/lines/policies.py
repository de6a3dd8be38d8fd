"""What a policy is about, as cells of `get policies`, and which objects are exempt from one.

Called by columns.py and by `describe`.
"""

from __future__ import annotations

from fleetctl.common.text import safe
from fleetctl.views.objects import View, mapping

PREFIX = "policy."  # of the annotation; without any, what reads it is not loaded


def _match(seen: View, field: str) -> str:
    found = mapping(seen.spec().get("match")).get(field)
    return safe(",".join(map(str, found))) if isinstance(found, list) and found else "all"


def kinds_cell(seen: View, _now_s: float) -> str:
    return _match(seen, "kinds")


def namespaces_cell(seen: View, _now_s: float) -> str:
    return _match(seen, "namespaces")


def rules_cell(seen: View, _now_s: float) -> str:
    """`3 deny, 1 warn`."""
    rules = seen.spec().get("rules")
    each = [mapping(it).get("action", "Deny") for it in rules] if isinstance(rules, list) else []
    counts = ((each.count("Deny"), "deny"), (each.count("Warn"), "warn"))
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "-"


def exempt_line(seen: View, now_s: float) -> str:
    """`limits until 2026-12-31, because ...`; empty of an object that is exempt from nothing."""
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
