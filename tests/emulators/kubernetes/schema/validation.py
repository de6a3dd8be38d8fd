"""Whether an object is as the schema of its CRD wants it, in the words of the real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.emulators.kubernetes.schema.nodes import Node, child, item, list_keys, resolved, type_of

Cause = dict[str, str]
_SAID = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueNotFound": "Not found",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
}
_NOTHING = object()
# The largest whole number that the server's validation, which has them as floats, takes for one.
EXACT_MAX = 2**53 - 1


def cause(reason: str, path: str, detail: str = "", *, value: Any = _NOTHING) -> Cause:
    """One line of `causes`. value: shown as JSON unless it is left out."""
    said = _SAID[reason]
    if value is not _NOTHING:
        said += f": {shown(value)}"
    return {"reason": reason, "message": said + (f": {detail}" if detail else ""), "field": path}


def required(path: str, detail: str = "") -> Cause:
    return cause("FieldValueRequired", path, detail)


def invalid_value(path: str, value: Any, detail: str) -> Cause:
    return cause("FieldValueInvalid", path, detail, value=value)


def unsupported(path: str, value: Any, supported: list[Any]) -> Cause:
    values = ", ".join(shown(it) for it in supported)
    detail = f"supported values: {values}"
    return cause("FieldValueNotSupported", path, detail, value=value)


def shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def validate(value: Any, node: Node, path: str = "") -> Iterator[Cause]:
    """path: of `value`, with dots and [n]; the root's is ""."""
    kind = _kind(value)
    if value is None and node.get("nullable"):
        return
    wanted = type_of(node)
    if node.get("x-kubernetes-int-or-string"):
        if kind not in ("integer", "string"):
            yield _type_cause(path, "integer,string", kind)
        return
    if wanted and not _is(kind, wanted, value):
        yield _type_cause(path, wanted, kind)
        return
    if "enum" in node and value not in node["enum"]:
        yield unsupported(path, value, node["enum"])
    if kind == "object":
        yield from _object(value, node, path)
    elif kind == "array":
        yield from _array(value, node, path)
    elif kind == "string":
        yield from _string(value, node, path)
    elif kind in ("integer", "number"):
        yield from _number(value, node, path)
    yield from _combined(value, node, path)


def _type_cause(path: str, wanted: str, kind: str) -> Cause:
    detail = f'{path} in body must be of type {wanted}: "{kind}"'
    return cause("FieldValueTypeInvalid", path, detail, value=kind)


def _kind(value: Any) -> str:
    for kinds, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (dict, "object"),
        (list, "array"),
    ):
        if isinstance(value, kinds):
            return name
    return "null"


def _is(kind: str, wanted: str, value: Any) -> bool:
    if wanted == "number":
        return kind in ("integer", "number")
    if wanted == "integer" and kind == "number":
        return bool(float(value).is_integer())
    return kind == wanted


def _object(value: dict[str, Any], node: Node, path: str) -> Iterator[Cause]:
    for name in node.get("required", ()):
        if name not in value:
            yield required(_join(path, name))
    size = len(value)
    if size > node.get("maxProperties", size):
        most = node["maxProperties"]
        yield cause("FieldValueTooMany", path, f"must have at most {most} items", value=size)
    if size < node.get("minProperties", 0):
        least = node["minProperties"]
        yield invalid_value(path, size, f"{path} in body should have at least {least} properties")
    for name, one in value.items():
        below = child(node, name)
        if below is not None and (path or name not in ("apiVersion", "kind", "metadata")):
            yield from validate(one, below, _join(path, name))


def _array(value: list[Any], node: Node, path: str) -> Iterator[Cause]:
    size = len(value)
    if size > node.get("maxItems", size):
        most = node["maxItems"]
        yield cause("FieldValueTooMany", path, f"must have at most {most} items", value=size)
    if size < node.get("minItems", 0):
        least = node["minItems"]
        yield invalid_value(path, size, f"{path} in body should have at least {least} items")
    below, keys, seen = item(node), list_keys(node), set()
    unique = keys or node.get("x-kubernetes-list-type") == "set"
    for number, one in enumerate(value):
        where = f"{path}[{number}]"
        yield from validate(one, below, where)
        if unique:
            told = {it: one.get(it) for it in keys if it in one} if keys else one
            if shown(told) in seen:
                yield cause("FieldValueDuplicate", where, value=told)
            seen.add(shown(told))


def _string(value: str, node: Node, path: str) -> Iterator[Cause]:
    if len(value) > node.get("maxLength", len(value)):
        most = node["maxLength"]
        yield cause("FieldValueTooLong", path, f"may not be more than {most} bytes")
    if len(value) < node.get("minLength", 0):
        least = node["minLength"]
        yield invalid_value(path, value, f"{path} in body should be at least {least} chars long")
    if "pattern" in node and not re.search(node["pattern"], value):
        yield invalid_value(path, value, f"{path} in body should match '{node['pattern']}'")
    if node.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            detail = f'{path} in body must be of type date-time: "{value}"'
            yield invalid_value(path, value, detail)


def _number(value: float, node: Node, path: str) -> Iterator[Cause]:
    rules = (
        ("maximum", "exclusiveMaximum", "less than", value.__gt__, value.__ge__),
        ("minimum", "exclusiveMinimum", "greater than", value.__lt__, value.__le__),
    )
    for name, exclusive, words, beyond, at_or_beyond in rules:
        if name not in node:
            continue
        if node.get("type") == "integer" and abs(node[name]) > EXACT_MAX:
            detail = (
                f"{name.capitalize()} boundary value must be of type integer (default format) in"
                f" {path}"
            )
            yield invalid_value(path, value, detail)
            continue
        strict = node.get(exclusive)
        if (at_or_beyond if strict else beyond)(node[name]) is True:
            also = "" if strict else " or equal to"
            detail = f"{path} in body should be {words}{also} {node[name]}"
            yield invalid_value(path, value, detail)
    if "multipleOf" in node and value % node["multipleOf"]:
        detail = f"{path} in body should be a multiple of {node['multipleOf']}"
        yield invalid_value(path, value, detail)


def _combined(value: Any, node: Node, path: str) -> Iterator[Cause]:
    named = f'"{path}"'
    for one in node.get("allOf", ()):
        yield from validate(value, resolved(one), path)
    if "anyOf" in node and not any(_valid(value, it, path) for it in node["anyOf"]):
        yield invalid_value(path, value, f"{named} must validate at least one schema (anyOf)")
    if "oneOf" in node:
        found = sum(_valid(value, it, path) for it in node["oneOf"])
        if found != 1:
            how = "none valid" if not found else f"{found} valid alternatives"
            detail = f"{named} must validate one and only one schema (oneOf). Found {how}"
            yield invalid_value(path, value, detail)
    if "not" in node and _valid(value, node["not"], path):
        yield invalid_value(path, value, f"{named} must not validate the schema (not)")


def _valid(value: Any, node: Node, path: str) -> bool:
    return not any(True for _ in validate(value, resolved(node), path))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
