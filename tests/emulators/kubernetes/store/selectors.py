"""Label selectors and field selectors, as query parameters and as objects have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.kubernetes.store.errors import ApiError

Labels = Mapping[str, str]
_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\((.*)\)$")


def label_selector(text: str) -> Callable[[Labels], bool]:
    """Raises ApiError 400 when it cannot be read."""
    tests = [_label_test(it) for it in _split(text)]
    return lambda labels: all(test(labels) for test in tests)


def _split(text: str) -> list[str]:
    """At commas outside of parentheses."""
    parts = re.split(r",(?![^(]*\))", text)
    return [it.strip() for it in parts if it.strip()]


def _label_test(part: str) -> Callable[[Labels], bool]:
    if found := _SET.match(part):
        key, how, values = found[1], found[2], {it.strip() for it in found[3].split(",")}
        if how == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for sign in ("!=", "==", "="):
        if sign in part:
            key, value = (it.strip() for it in part.split(sign, 1))
            if sign == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
    if re.fullmatch(r"!?\s*[A-Za-z0-9._/-]+", part):
        key = part.lstrip("! ")
        wanted = not part.startswith("!")
        return lambda labels: (key in labels) == wanted
    raise ApiError(400, f"unable to parse requirement: found '{part}', expected: identifier")


def matches(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """matchLabels and matchExpressions; an empty selector takes everything, none takes nothing."""
    if selector is None:
        return False
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    for one in selector.get("matchExpressions") or ():
        value, values = labels.get(one["key"]), one.get("values") or ()
        if not {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[one["operator"]]:
            return False
    return True


# What may be selected besides metadata.name and metadata.namespace.
FIELDS = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("", "events"): (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("", "secrets"): ("type",),
    ("", "namespaces"): ("status.phase",),
    ("", "nodes"): ("spec.unschedulable",),
    ("batch", "jobs"): ("status.successful",),
}


def field_selector(
    text: str, key: tuple[str, str], *, selectable: tuple[str, ...] = ()
) -> Callable[[dict[str, Any]], bool]:
    """selectable: what a CRD adds. Raises ApiError 400 for a field that is not selectable."""
    known = ("metadata.name", "metadata.namespace", *FIELDS.get(key, ()), *selectable)
    tests: list[Callable[[dict[str, Any]], bool]] = []
    for part in _split(text):
        sign = next((it for it in ("!=", "==", "=") if it in part), None)
        if sign is None:
            raise ApiError(400, f"invalid selector: '{text}'; can't understand '{part}'")
        path, value = part.split(sign, 1)
        if path not in known:
            raise ApiError(400, f"field label not supported: {path}")
        tests.append(_field_test(path, value, equal=sign != "!="))
    return lambda one: all(test(one) for test in tests)


def _field_test(path: str, value: str, *, equal: bool) -> Callable[[dict[str, Any]], bool]:
    names = path.split(".")
    if names == ["source"]:
        names = ["source", "component"]

    def test(one: dict[str, Any]) -> bool:
        found: Any = one
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, bool):
            found = str(found).lower()
        return (str(found if found is not None else "") == value) == equal

    return test
