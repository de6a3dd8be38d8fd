"""Whether an answer is one that an OpenAPI document describes: status, type, and the body's shape.

As much of JSON Schema as API descriptions use. Keys that a schema does not know are allowed, as the
standard has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
}


def problems(document: Mapping[str, Any], operation: str, status: int, raw: bytes) -> list[str]:
    """In words, one line each; empty when the answer is as described. Unknown operations pass."""
    described = _operation(document, operation)
    if described is None:
        return []
    answer = described["responses"].get(str(status))
    if answer is None:
        return [f"{operation}: status {status} is not described"]
    schema = answer.get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return []
    try:
        body = json.loads(raw)
    except ValueError:
        return [f"{operation}: the body is not JSON"]
    return [f"{operation}: {line}" for line in _differences(document, schema, body, "body")]


def _operation(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    for path in document["paths"].values():
        for method in METHODS:
            found = path.get(method)
            if found is not None and found.get("operationId") == name:
                assert isinstance(found, Mapping)
                return found
    return None


def _differences(
    document: Mapping[str, Any], schema: Mapping[str, Any], value: Any, at: str
) -> Iterator[str]:
    if "$ref" in schema:
        schema = _resolved(document, schema["$ref"])
    if value is None:
        if not schema.get("nullable"):
            yield f"{at} is null"
        return
    for part in schema.get("allOf", ()):
        yield from _differences(document, part, value, at)
    kind = schema.get("type")
    if kind is not None and not _is(kind, value):
        yield f"{at} is `{value!r}`, which is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is `{value!r}`, which is not one of {schema['enum']}"
    if schema.get("format") == "date-time" and not _is_moment(value):
        yield f"{at} is `{value!r}`, which is no date-time"
    if isinstance(value, dict):
        yield from _of_object(document, schema, value, at)
    elif isinstance(value, list):
        for item in value:
            yield from _differences(document, schema.get("items", {}), item, f"{at}[]")


def _of_object(
    document: Mapping[str, Any], schema: Mapping[str, Any], value: Mapping[str, Any], at: str
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}.{name} is missing"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            yield from _differences(document, properties[name], item, f"{at}.{name}")
        elif isinstance(others, Mapping):
            yield from _differences(document, others, item, f"{at}.*")


def _resolved(document: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    assert isinstance(found, Mapping)
    return found


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])


def _is_moment(value: Any) -> bool:
    try:
        datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return False
    return True
