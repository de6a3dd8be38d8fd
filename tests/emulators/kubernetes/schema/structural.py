"""Finds the faults for which the real server refuses a CRD's schema: it is not structural, or a
rule does not compile or may cost too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema.cel_types import CompileError, cost_of_rule, most_of
from tests.emulators.kubernetes.schema.nodes import Node
from tests.emulators.kubernetes.schema.validation import (
    Cause,
    cause,
    invalid_value,
    required,
    unsupported,
)

RULES = "x-kubernetes-validations"
OPEN, EITHER = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
RULE_COST_MAX, SCHEMA_COST_MAX = 10_000_000.0, 100_000_000.0
TYPES = ["array", "boolean", "integer", "number", "object", "string"]
_FORBIDDEN = {
    "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported",
    "patternProperties": "patternProperties is not supported",
    "additionalItems": "additionalItems is not supported",
    "$ref": "$ref is not supported",
    "$schema": "$schema is not supported",
    "id": "id is not supported",
}
# Syntax of Perl that RE2 lacks: lookarounds, backreferences, atomic groups, possessive quantifiers.
_NOT_RE2 = re.compile(r"\(\?[=!]|\(\?<[=!]|(?<!\\)\\[1-9]|\(\?>|[*+?]\+")
_METADATA = (
    "must not specify anything other than name and generateName, but metadata is implicitly"
    " specified"
)


def schema_problems(definition: dict[str, Any]) -> Iterator[Cause]:
    """Of all versions of a CRD. A single version's schema is named as v1beta1 had it."""
    versions = (definition.get("spec") or {}).get("versions") or []
    for number, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            continue
        alone = len(versions) == 1
        at = "validation" if alone else f"versions[{number}].schema"
        yield from _Checked(f"spec.{at}.openAPIV3Schema").root(schema)


class _Checked:
    """cost: cost of all rules so far, each times the number of values that it may be applied to."""

    def __init__(self, path: str) -> None:
        self._path, self._cost = path, 0.0

    def root(self, schema: Node) -> Iterator[Cause]:
        if schema.get("type") != "object":
            yield invalid_value(f"{self._path}.type", schema.get("type", ""), "must be object")
        yield from _metadata(schema, self._path)
        yield from self._node(schema, self._path, times=1, root=True)
        if self._cost > SCHEMA_COST_MAX:
            yield _too_dear(self._path, "CRD", self._cost / SCHEMA_COST_MAX, "total CEL cost")

    def _node(self, node: Node, path: str, *, times: int, root: bool = False) -> Iterator[Cause]:
        yield from _shape(node, path, root=root)
        for number, rule in enumerate(node.get(RULES) or ()):
            yield from self._rule(rule, node, f"{path}.{RULES}[{number}].rule", times, root)
        for name, inner in (node.get("properties") or {}).items():
            yield from self._node(inner, f"{path}.properties[{name}]", times=times)
        more = node.get("additionalProperties")
        if isinstance(more, dict):
            yield from self._node(more, f"{path}.additionalProperties", times=times * most_of(node))
        if isinstance(node.get("items"), dict):
            yield from self._node(node["items"], f"{path}.items", times=times * most_of(node))

    def _rule(
        self, rule: dict[str, Any], node: Node, path: str, times: int, root: bool
    ) -> Iterator[Cause]:
        text = str(rule.get("rule") or "")
        if not text.strip():
            yield required(path, "rule is not specified")
            return
        try:
            cost = cost_of_rule(text, node, root=root) * times
        except CompileError as error:
            detail = f"compilation failed: ERROR: <input>:1:{error.at + 1}: {error}"
            yield invalid_value(path, text, detail)
            return
        self._cost += cost
        if cost > RULE_COST_MAX:
            yield _too_dear(path, text, cost / RULE_COST_MAX, "estimated rule cost")


def _too_dear(path: str, value: str, factor: float, what: str) -> Cause:
    shown = "more than 100x" if factor > 100 else f"{factor:.1f}x"
    detail = (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems,"
        " maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
    return cause("FieldValueForbidden", path, detail)


def _metadata(schema: Node, path: str) -> Iterator[Cause]:
    metadata = (schema.get("properties") or {}).get("metadata")
    if metadata is None:
        return
    where = f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield invalid_value(f"{where}.type", metadata.get("type", ""), "must be object")
    if set(metadata.get("properties") or {}) - {"name", "generateName"} or metadata.get(OPEN):
        yield cause("FieldValueForbidden", where, _METADATA)


def _shape(node: Node, path: str, *, root: bool) -> Iterator[Cause]:
    """What makes one node structural."""
    sort = node.get("type")
    if not sort and not node.get(OPEN) and not node.get(EITHER):
        what = "object fields" if not path.endswith("items") else "array items"
        yield required(f"{path}.type", f"must not be empty for specified {what}")
    elif sort and sort not in TYPES:
        yield unsupported(f"{path}.type", sort, TYPES)
    if sort and node.get(EITHER):
        detail = f"must be empty if {EITHER} is true"
        yield cause("FieldValueForbidden", f"{path}.type", detail)
    if sort == "array" and "items" not in node:
        yield required(f"{path}.items", "must be specified")
    for name, detail in _FORBIDDEN.items():
        if node.get(name):
            yield cause("FieldValueForbidden", f"{path}.{name}", detail)
    if node.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield cause("FieldValueForbidden", f"{path}.uniqueItems", detail)
    yield from _additional(node, path, root=root)
    pattern = node.get("pattern")
    if pattern and _NOT_RE2.search(pattern):
        detail = (
            "must be a valid regular expression, but isn't: error parsing regexp: invalid or"
            " unsupported Perl syntax"
        )
        yield invalid_value(f"{path}.pattern", pattern, detail)


def _additional(node: Node, path: str, *, root: bool) -> Iterator[Cause]:
    if "additionalProperties" not in node:
        return
    where = f"{path}.additionalProperties"
    if node.get("properties"):
        yield cause(
            "FieldValueForbidden", where, "additionalProperties and properties are mutual exclusive"
        )
    if node["additionalProperties"] is False:
        yield cause("FieldValueForbidden", where, "additionalProperties cannot be set to false")
    if root:
        yield cause("FieldValueForbidden", where, "must not be used at the root")
