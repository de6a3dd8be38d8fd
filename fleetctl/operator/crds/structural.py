"""A JSON Schema of ours as the structural schema that an API server demands. Pure.

Types that a structural schema cannot express (a number or a text, a text or a mapping) are left
open there: our own validation decides, and its refusal becomes a condition. Defaults are left out,
so that the server stores the manifest as its author wrote it.
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


def build_structural_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Returns the structural schema. schema: one below `$defs`, or any part of such a schema."""
    return _convert_schema(schema, definitions, ())


def _convert_schema(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    within: tuple[str, ...],
) -> Schema:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name in within:
            return _add_description(schema, OPEN)  # it holds itself: as deep as it likes
        return _add_description(
            schema, _convert_schema(definitions[name], definitions, (*within, name))
        )
    if "anyOf" in schema:
        return _add_description(schema, _convert_union(schema["anyOf"], definitions, within))
    made = {key: schema[key] for key in _SAME if key in schema}
    if "const" in schema or "enum" in schema:
        made["enum"] = list(schema.get("enum") or [schema["const"]])
    if "exclusiveMinimum" in schema:
        made |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    sort = schema.get("type")
    if sort == "array":
        return made | {"type": sort, "items": _convert_schema(schema["items"], definitions, within)}
    if sort == "object" or "properties" in schema:
        return made | _convert_object(schema, definitions, within)
    if isinstance(sort, str) and sort in _SCALARS:
        return made | {"type": sort}
    return _add_description(made, OPEN)


def _convert_object(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    within: tuple[str, ...],
) -> Schema:
    fields = schema.get("properties")
    more = schema.get("additionalProperties")
    if fields:
        shown = {name: _convert_schema(it, definitions, within) for name, it in fields.items()}
        open_too = OPEN if more not in (None, False) else {}
        return {"type": "object", "properties": shown, **open_too}
    values = list((schema.get("patternProperties") or {}).values())
    if isinstance(more, dict):
        values.append(more)
    each = _convert_schema(values[0], definitions, within) if len(values) == 1 else OPEN
    # A map without a type for its values cannot be a field of a rule; an object of anything can.
    if not _is_typed(each):
        return {"type": "object", **OPEN}
    return {"type": "object", "additionalProperties": each}


def _is_typed(made: Schema) -> bool:
    """Returns whether rules in CEL can see a value of this schema."""
    if made.get("type") == "array":
        return _is_typed(made["items"])
    return "type" in made or "x-kubernetes-int-or-string" in made


def _convert_union(
    forms: list[Mapping[str, Any]],
    definitions: Mapping[str, Any],
    within: tuple[str, ...],
) -> Schema:
    told = [it for it in forms if it.get("type") != "null"]
    nullable = {"nullable": True} if len(told) < len(forms) else {}
    if len(told) == 1:
        return {**_convert_schema(told[0], definitions, within), **nullable}
    sorts = {str(it.get("type")) for it in told}
    if sorts == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True, **nullable}
    if sorts == {"integer", "number"}:
        return {"type": "number", **nullable}
    return {**OPEN, **nullable}


def _add_description(by: Mapping[str, Any], made: Schema) -> Schema:
    """Adds the description beside a reference or a union, which is more specific than the one
    inside.
    """
    if "description" in by:
        return {**made, "description": by["description"]}
    return dict(made)
