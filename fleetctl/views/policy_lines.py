"""Cells of `get policies`: what a policy is about, as its spec says it. Called by columns.py."""

from __future__ import annotations

from fleetctl.common.text import safe
from fleetctl.views.objects import View, mapping


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
    return ", ".join(f"{count} {word}" for count, word in counts if count)
