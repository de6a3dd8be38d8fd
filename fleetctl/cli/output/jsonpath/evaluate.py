"""Turns nodes and a document into text, as kubectl prints it. A missing field has an empty
result."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

from fleetctl.cli.output.jsonpath.template_nodes import (
    FieldStep,
    FilterStep,
    IndexStep,
    LiteralStep,
    OneStep,
    Path,
    RangeBlock,
    RecursiveStep,
    SliceStep,
    Template,
    UnionStep,
    WildcardStep,
)
from fleetctl.common.errors import UsageError

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


# Each `..` visits all values below, so that several in a row would take days. This many visits are
# 25,000 objects read through by one `..`, and take some seconds.
VISITS_MAX = 5_000_000


class VisitLimit:
    """A bound on the values that a command's paths visit."""

    def __init__(self, visits: int = VISITS_MAX) -> None:
        self._left = visits

    def count(self, visits: int) -> None:
        """Counts visited values. Raises UsageError above the limit."""
        self._left -= visits
        if self._left < 0:
            raise UsageError(
                f"JSONPath comes past more than {VISITS_MAX:,} values",
                hint="name the fields: each `..` goes through all that is below",
            )


def render_template(template: Template, document: object) -> str:
    """Returns the whole text. Raises UsageError for an index that is out of bounds, as kubectl
    does."""
    return "".join(_render_parts(template, document, VisitLimit()))


def _render_parts(
    template: Template,
    document: object,
    limit: VisitLimit,
) -> Iterator[str]:
    for part in template:
        if isinstance(part, str):
            yield part
        elif isinstance(part, RangeBlock):
            for member in find_values(part.over, document, limit):
                yield from _render_parts(part.body, member, limit)
        else:
            yield " ".join(format_value(value) for value in find_values(part, document, limit))


def format_value(value: object) -> str:
    """Returns strings bare, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def find_values(
    path: Path,
    document: object,
    limit: VisitLimit,
) -> list[object]:
    """Returns all values that the path leads to, in the document's order. Raises UsageError."""
    found = [document]
    for step in path:
        reached: list[object] = []
        if isinstance(step, UnionStep):  # all results of the first part, then all of the second
            for part in step.parts:
                for member in found:
                    reached += find_values(part, member, limit)
        else:
            for member in found:
                values = _apply_step(step, member, limit)
                limit.count(1 + len(values))
                reached += values
        found = reached
    return found


def _apply_step(
    step: OneStep,
    value: object,
    limit: VisitLimit,
) -> list[object]:
    match step:
        case FieldStep(name):
            return [value[name]] if isinstance(value, dict) and name in value else []
        case IndexStep(at):
            return [_get_member(_require_list(value, at), at)] if value is not None else []
        case SliceStep():
            return _apply_slice(step, value)
        case WildcardStep():
            return _list_members(value)
        case RecursiveStep():
            return list(_walk_members(value))
        case LiteralStep(literal):
            return [literal]
        case FilterStep():
            return [
                member for member in _list_members(value) if _matches_filter(step, member, limit)
            ]


def _list_members(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    return []


def _walk_members(value: object) -> Iterator[object]:
    yield value
    for member in _list_members(value):
        yield from _walk_members(member)


def _require_list(value: object, wanted: object) -> list[object]:
    if not isinstance(value, (list, tuple)):
        kind = "an object" if isinstance(value, dict) else f"`{format_value(value)}`"
        raise UsageError(f"JSONPath asks for `[{wanted}]` of {kind}, which is not a list")
    return list(value)


def _get_member(members: list[object], at: int) -> object:
    if not -len(members) <= at < len(members):
        raise _out_of_bounds(at, len(members))
    return members[at]


def _out_of_bounds(at: int, length: int) -> UsageError:
    return UsageError(
        f"JSONPath index `{at}` is out of bounds: the list has {length} members",
        hint="a slice such as [*] or a filter [?(...)] takes what there is",
    )


def _apply_slice(step: SliceStep, value: object) -> list[object]:
    if step == SliceStep(None, None, None):
        return _list_members(value)
    if value is None:
        return []
    members = _require_list(value, ":")
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
        raise _out_of_bounds(start, length)
    if not 0 <= end <= length:
        raise _out_of_bounds(end - 1, length)
    if start > end:
        raise UsageError(f"JSONPath slice begins at `{start}` and ends before, at `{end}`")
    return members[start : end : step.step]


def _matches_filter(
    step: FilterStep,
    member: object,
    limit: VisitLimit,
) -> bool:
    left = find_values(step.left, member, limit)
    if not step.op:
        return bool(left)
    right = find_values(step.right, member, limit)
    if not left or not right:
        return False
    if len(left) > 1 or len(right) > 1:
        raise UsageError("a JSONPath filter compares one value with one value")
    return _compare_values(left[0], step.op, right[0])


def _compare_values(
    left: object,
    op: str,
    right: object,
) -> bool:
    """Compares as kubectl does: values of different types differ, and have no order."""
    if _value_type(left) != _value_type(right):
        return op == "!="
    if op not in ("==", "!=") and not isinstance(left, (str, int, float)):
        return False
    return _COMPARE[op](left, right)


def _value_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return type(value).__name__
