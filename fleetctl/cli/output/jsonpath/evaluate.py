"""Nodes and a document to text, as kubectl prints it. A field that is missing finds nothing."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

from fleetctl.cli.output.jsonpath.nodes import (
    Field,
    Filter,
    Index,
    Literal,
    OneStep,
    Path,
    Range,
    Recursive,
    Slice,
    Template,
    Union,
    Wildcard,
)
from fleetctl.common.errors import UsageError

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def render(template: Template, document: object) -> str:
    """The whole text. Raises UsageError for an index that is out of bounds, as kubectl does."""
    return "".join(_rendered(template, document))


def _rendered(template: Template, document: object) -> Iterator[str]:
    for part in template:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Range):
            for member in find(part.over, document):
                yield from _rendered(part.body, member)
        else:
            yield " ".join(shown(value) for value in find(part, document))


def shown(value: object) -> str:
    """Strings bare, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def find(path: Path, document: object) -> list[object]:
    """All that the path leads to, in the document's order."""
    found = [document]
    for step in path:
        if isinstance(step, Union):  # all that the first part finds, then all of the second
            found = [
                value for part in step.parts for member in found for value in find(part, member)
            ]
        else:
            found = [value for member in found for value in _step(step, member)]
    return found


def _step(step: OneStep, value: object) -> list[object]:
    match step:
        case Field(name):
            return [value[name]] if isinstance(value, dict) and name in value else []
        case Index(at):
            return [_member(_list(value, at), at)] if value is not None else []
        case Slice():
            return _slice(step, value)
        case Wildcard():
            return _members(value)
        case Recursive():
            return list(_everything(value))
        case Literal(literal):
            return [literal]
        case Filter():
            return [member for member in _members(value) if _holds(step, member)]


def _members(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def _everything(value: object) -> Iterator[object]:
    yield value
    for member in _members(value):
        yield from _everything(member)


def _list(value: object, wanted: object) -> list[object]:
    if not isinstance(value, (list, tuple)):
        kind = "an object" if isinstance(value, dict) else f"`{shown(value)}`"
        raise UsageError(f"JSONPath asks for `[{wanted}]` of {kind}, which is not a list")
    return list(value)


def _member(members: list[object], at: int) -> object:
    if not -len(members) <= at < len(members):
        raise _beyond(at, len(members))
    return members[at]


def _beyond(at: int, length: int) -> UsageError:
    return UsageError(
        f"JSONPath index `{at}` is out of bounds: the list has {length} members",
        hint="a slice such as [*] or a filter [?(...)] takes what there is",
    )


def _slice(step: Slice, value: object) -> list[object]:
    if step == Slice(None, None, None):
        return _members(value)
    if value is None:
        return []
    members = _list(value, ":")
    length = len(members)
    start, end = (
        given if given is None or given >= 0 else given + length for given in (step.start, step.end)
    )
    start = 0 if start is None else start
    end = length if end is None else end
    if step.step is not None and step.step < 1:
        raise UsageError(f"JSONPath slice step is `{step.step}`; it must be at least 1")
    if start == end:
        return []
    if not 0 <= start < length:
        raise _beyond(start, length)
    if not 0 <= end <= length:
        raise _beyond(end - 1, length)
    if start > end:
        raise UsageError(f"JSONPath slice begins at `{start}` and ends before, at `{end}`")
    return members[start : end : step.step]


def _holds(step: Filter, member: object) -> bool:
    left = find(step.left, member)
    if not step.op:
        return bool(left)
    right = find(step.right, member)
    if not left or not right:
        return False
    if len(left) > 1 or len(right) > 1:
        raise UsageError("a JSONPath filter compares one value with one value")
    return _compares(left[0], step.op, right[0])


def _compares(left: object, op: str, right: object) -> bool:
    """Values of different types differ, and are in no order."""
    if _sort(left) != _sort(right):
        return op == "!="
    if op not in ("==", "!=") and not isinstance(left, (str, int, float)):
        return False
    return _COMPARE[op](left, right)


def _sort(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else type(value).__name__
