"""A JSON Schema of ours as the structural schema that an API server demands. Pure.

What a structural schema cannot say (a number or a text, a text or a mapping) is left open there:
our own validation decides, and its refusal becomes a condition. Defaults are left out, so that what
the server stores is what a person wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.specs.values.cluster_rules import KEY as RULES

Schema = dict[str, Any]

OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
# Kept as they are: they mean the same in both.
_SAME = (
    "description", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "minimum", "maximum", "required", RULES,
)  # fmt: skip
_SCALARS = frozenset(("string", "integer", "number", "boolean"))


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """schema: one of those below `$defs`, or anything in it."""
    return _made(schema, definitions, ())


def _made(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> Schema:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name in within:
            return _described(schema, OPEN)  # it holds itself: as deep as it likes
        return _described(schema, _made(definitions[name], definitions, (*within, name)))
    if "anyOf" in schema:
        return _described(schema, _union(schema["anyOf"], definitions, within))
    made = {key: schema[key] for key in _SAME if key in schema}
    if "const" in schema or "enum" in schema:
        made["enum"] = list(schema.get("enum") or [schema["const"]])
    if "exclusiveMinimum" in schema:
        made |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    sort = schema.get("type")
    if sort == "array":
        return made | {"type": sort, "items": _made(schema["items"], definitions, within)}
    if sort == "object" or "properties" in schema:
        return made | _object(schema, definitions, within)
    if isinstance(sort, str) and sort in _SCALARS:
        return made | {"type": sort}
    return _described(made, OPEN)


def _object(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> Schema:
    fields, more = schema.get("properties"), schema.get("additionalProperties")
    if fields:
        shown = {name: _made(it, definitions, within) for name, it in fields.items()}
        open_too = OPEN if more not in (None, False) else {}
        return {"type": "object", "properties": shown, **open_too}
    values = list((schema.get("patternProperties") or {}).values())
    if isinstance(more, dict):
        values.append(more)
    if len(values) == 1:
        each = _made(values[0], definitions, within)
        return {"type": "object", "additionalProperties": each}
    return {"type": "object", **OPEN}


def _union(
    forms: list[Mapping[str, Any]], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> Schema:
    told = [it for it in forms if it.get("type") != "null"]
    nullable = {"nullable": True} if len(told) < len(forms) else {}
    if len(told) == 1:
        return {**_made(told[0], definitions, within), **nullable}
    sorts = {str(it.get("type")) for it in told}
    if sorts == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True, **nullable}
    if sorts == {"integer", "number"}:
        return {"type": "number", **nullable}
    return {**OPEN, **nullable}


def _described(by: Mapping[str, Any], made: Schema) -> Schema:
    """What stands beside a reference or a union says more than what is inside."""
    return {**made, "description": by["description"]} if "description" in by else dict(made)
