"""Checks that an expression names existing fields and compares values that can be equal, by the
schemas of the kinds that a policy matches. Pure; called by predictions/predict.py.

A field is wrong if no matched kind has it. Parts that a schema leaves open are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fleetctl.apply.policies.expressions import (
    LOOPS,
    ExpressionError,
    SyntaxNode,
    UnreadExpression,
    parse_expression,
)
from fleetctl.common.text import did_you_mean
from fleetctl.specs.kinds.registry import KINDS

Schema = Mapping[str, Any]
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_BOOL: Schema = {"type": "boolean"}
_NULL: Schema = {"type": "null"}
_OPEN: Schema = {}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}


def _closed_schema(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "additionalProperties": False}


# As judge.py gives them.
_CHANGE = _closed_schema(
    path=_TEXT,
    before=_OPEN,
    after=_OPEN,
)
_PLAN = _closed_schema(
    action=_TEXT,
    changes={"type": "array", "items": _CHANGE},
    units=_NUMBER,
    toRun=_NUMBER,
    again=_NUMBER,
    destroys=_NUMBER,
)
_COST = _closed_schema(
    known=_BOOL,
    usd=_NUMBER,
    expected=_NUMBER,
)
_WORDS = {"string": "a text", "number": "a number", "boolean": "true or false", "array": "a list"}


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a value. forms: possible schemas, with references resolved; empty: any value."""

    forms: tuple[Schema, ...] = ()

    @property
    def known(self) -> bool:
        return bool(self.forms)

    def sorts(self) -> frozenset[str]:
        """Types of JSON, whole numbers among the numbers; empty where one may be anything."""
        found = [str(it.get("type") or "") for it in self.forms]
        if "" in found:
            return frozenset()
        return frozenset("number" if it == "integer" else it for it in found)


ANY = ValueType()


def check_types(text: str, kinds: Sequence[str]) -> None:
    """Checks the types of an expression; raises ExpressionError. kinds: that the policy matches."""
    try:
        tree = parse_expression(text)
    except UnreadExpression:
        return  # the library reports the error, and supports more of CEL
    whole = ValueType(tuple(_object_schema(kind) for kind in kinds))
    old = ValueType((*whole.forms, _NULL))
    names = {
        "object": whole,
        "old": old,
        "plan": ValueType((_PLAN,)),
        "cost": ValueType((_COST,)),
        "namespace": ValueType((_TEXT,)),
    }
    _Checker().type_of(tree, names)


@cache
def _object_schema(kind: str) -> Schema:
    """Returns the schema of a document in expressions, with defaults and one form per value."""
    schema = KINDS[kind].spec.model_json_schema(mode="serialization", by_alias=True)
    definitions = schema.pop("$defs", {})
    spec = {**schema, "$defs": definitions}
    metadata = _closed_schema(
        name=_TEXT,
        namespace=_TEXT,
        labels=_TEXTS,
        annotations=_TEXTS,
    )
    return _closed_schema(
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata=metadata,
        spec=spec,
    )


def _list_forms(schema: Schema, definitions: Mapping[str, Any]) -> Iterator[Schema]:
    """Yields each alternative of a schema, with the definitions that it refers to."""
    definitions = schema.get("$defs", definitions)
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        yield from _list_forms(definitions[name], definitions)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _list_forms(one, definitions)
    elif "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        yield {"type": "string" if all(isinstance(it, str) for it in values) else ""}
    else:
        yield {**schema, "$defs": definitions}


class _Checker:
    def type_of(self, node: SyntaxNode, names: Mapping[str, ValueType]) -> ValueType:
        """Returns the type of a node. Raises ExpressionError for an error in it."""
        match node.sort:
            case "literal":
                return _of_literal(node.text)
            case "name":
                return names.get(node.text, ANY)
            case "select":
                return self._selected(self.type_of(node.parts[0], names), node)
            case "index":
                target, _ = [self.type_of(it, names) for it in node.parts]
                return _item_type(target)
            case "call":
                return self._called(node, names)
            case "binary":
                return self._operated(node, names)
            case "choice":
                _, first, other = [self.type_of(it, names) for it in node.parts]
                return (
                    ValueType((*first.forms, *other.forms)) if first.known and other.known else ANY
                )
        for part in node.parts:
            self.type_of(part, names)
        if node.sort == "unary":
            if node.text == "!":
                return ValueType((_BOOL,))
            return ValueType((_NUMBER,))
        return ANY

    def _selected(self, target: ValueType, node: SyntaxNode) -> ValueType:
        if not target.known:
            return ANY
        found: list[Schema] = []
        known: set[str] = set()
        for form in target.forms:
            definitions = form.get("$defs", {})
            fields = form.get("properties")
            more = form.get("additionalProperties")
            if fields and node.text in fields:
                found += _list_forms(fields[node.text], definitions)
            elif isinstance(more, dict):
                found += _list_forms(more, definitions)
            elif not form.get("type") or (form["type"] == "object" and not fields):
                return ANY
            known |= set(fields or ())
        if found:
            if all(it.get("type") for it in found):
                return ValueType(tuple(found))
            return ANY
        near = did_you_mean(node.text, sorted(known))
        raise ExpressionError(f"there is no field `{node.text}`", near)

    def _called(self, node: SyntaxNode, names: Mapping[str, ValueType]) -> ValueType:
        if node.global_:
            for part in node.parts:
                self.type_of(part, names)
            return _GLOBAL.get(node.text, ANY)
        target = self.type_of(node.parts[0], names)
        if node.text in LOOPS and len(node.parts) > 1 and node.parts[1].sort == "name":
            inside = {**names, node.parts[1].text: _item_type(target, keys=True)}
            for part in node.parts[2:]:
                self.type_of(part, inside)
            if node.text == "filter":
                return target
            if node.text == "map":
                return ANY
            return ValueType((_BOOL,))
        for part in node.parts[1:]:
            self.type_of(part, names)
        return _OF_VALUES.get(node.text, ANY)

    def _operated(self, node: SyntaxNode, names: Mapping[str, ValueType]) -> ValueType:
        left, right = [self.type_of(it, names) for it in node.parts]
        if node.text in ("+", "-", "*", "/", "%"):
            if left.known:
                return left
            return right
        if node.text in ("==", "!=", "<", "<=", ">", ">="):
            one = left.sorts() - {"null"}
            other = right.sorts() - {"null"}
            if one and other and not one & other:
                raise ExpressionError(f"it compares {_join_sorts(one)} with {_join_sorts(other)}")
        return ValueType((_BOOL,))


def _of_literal(text: str) -> ValueType:
    if text in ("true", "false"):
        return ValueType((_BOOL,))
    if text == "null":
        return ValueType((_NULL,))
    return ValueType((_NUMBER if text[0].isdigit() else _TEXT,))


def _item_type(target: ValueType, *, keys: bool = False) -> ValueType:
    """Returns the type of a list's items, or of a mapping's values or, with `keys`, keys."""
    found: list[Schema] = []
    for form in target.forms:
        definitions = form.get("$defs", {})
        sort = form.get("type")
        if sort == "array" and form.get("items"):
            found += _list_forms(form["items"], definitions)
        elif sort == "object" and keys:
            found.append(_TEXT)
        elif sort == "object" and isinstance(form.get("additionalProperties"), dict):
            found += _list_forms(form["additionalProperties"], definitions)
        elif sort != "null":
            return ANY
    if all(it.get("type") for it in found):
        return ValueType(tuple(found))
    return ANY


def _join_sorts(sorts: frozenset[str]) -> str:
    return " or ".join(sorted(_WORDS.get(it, "an object") for it in sorts))


_GLOBAL: Mapping[str, ValueType] = {
    **dict.fromkeys(("size", "int", "uint", "double"), ValueType((_NUMBER,))),
    "string": ValueType((_TEXT,)),
    "has": ValueType((_BOOL,)),
}
_OF_VALUES: Mapping[str, ValueType] = {
    **dict.fromkeys(
        ("contains", "startsWith", "endsWith", "matches", "hasValue"), ValueType((_BOOL,))
    ),
    "size": ValueType((_NUMBER,)),
}
