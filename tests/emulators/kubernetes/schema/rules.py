"""x-kubernetes-validations: rules in CEL that a CRD adds to its schema."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema.nodes import Node, child, item, resolved, type_of
from tests.emulators.kubernetes.schema.validation import Cause, cause

RULES = "x-kubernetes-validations"
_known: dict[int, tuple[Node, bool]] = {}  # by id, with the node, so that the id stays its own


def broken(value: Any, node: Node, old: Any, path: str = "") -> Iterator[Cause]:
    """old: what was at the same place before an update, for rules that speak of oldSelf."""
    node = resolved(node)
    if not _has_rules(node):
        return
    for rule in node.get(RULES, ()):
        if found := _broken(rule, value, old, node, path):
            yield found
    if isinstance(value, dict):
        for name, one in value.items():
            below = child(node, name)
            if below is not None:
                before = old.get(name) if isinstance(old, dict) else None
                yield from broken(one, below, before, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from broken(one, item(node), None, f"{path}[{number}]")


def _has_rules(node: Node) -> bool:
    held = _known.get(id(node))
    if held is None:
        parts = [*node.get("properties", {}).values()]
        parts += [it for it in (node.get("items"), node.get("additionalProperties")) if it]
        found = RULES in node or any(
            _has_rules(it) for it in parts if isinstance(it, dict) and "$ref" not in it
        )
        held = _known[id(node)] = node, found
    return held[1]


@functools.lru_cache(maxsize=1024)
def _program(text: str) -> Any:
    import cel

    return cel.compile(text)


def _broken(rule: dict[str, Any], value: Any, old: Any, node: Node, path: str) -> Cause | None:
    text = rule["rule"]
    told = {"self": value}
    if "oldSelf" in text:
        if old is None and not rule.get("optionalOldSelf"):
            return None  # a rule about a change says nothing about what is new
        told["oldSelf"] = old
    try:
        holds = _program(text).execute(told)
        why = ""
    except (ValueError, RuntimeError, TypeError) as error:
        holds, why = False, f"rule evaluation error: {error}"
    if holds:
        return None
    message = why or rule.get("message") or f"failed rule: {text}"
    if not why and rule.get("messageExpression"):
        message = str(_program(rule["messageExpression"]).execute(told))
    where = path + (rule.get("fieldPath") or "")
    reason = rule.get("reason") or "FieldValueInvalid"
    if reason in ("FieldValueRequired", "FieldValueForbidden"):
        return cause(reason, where.lstrip("."), message)
    kind = type_of(node) or "object"
    shown = kind if kind in ("object", "array") else value
    return cause(reason, where.lstrip(".") or "<nil>", message, value=shown)
