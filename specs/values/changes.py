"""Compares two JSON documents, field by field. Pure; called by engine and cli."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fleetctl.specs.values.hashing import canonical_json

VALUE_CHARS_MAX = 40  # so that `old -> new` fits beside a path on one line
LINE_CHARS_MAX = 160  # of a value that has a line for itself

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Unset(Enum):
    """Stands for a field that one side does not have; JSON has no such value."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of a field. `before` or `after` is UNSET if the field is absent. difference: the
    difference, if the values alone do not show it.
    """

    path: str
    before: object
    after: object
    difference: str = ""

    @property
    def short(self) -> str:
        """Returns `parallelism 8 -> 16`; the path alone if a value is too long for a line."""
        if self.difference:
            return f"{self.path} {self.difference}"
        old = value_text(self.before)
        new = value_text(self.after)
        if old and new:
            return f"{self.path} {old} -> {new}"
        return self.path


def field_changes(
    before: object,
    after: object,
    path: str = "",
) -> list[FieldChange]:
    """Returns every field that differs, in the order of the newer document, then the fields that it
    lost.

    Lists of equal length differ entry by entry; otherwise as a whole.
    """
    return list(_list_changes(before, after, path))


def is_same_json(before: object, after: object) -> bool:
    """Returns True for equal JSON: `1`, `1.0` and `true` are three values, though Python calls them
    equal.
    """
    if UNSET in (before, after):
        return before is after
    return before == after and canonical_json(before) == canonical_json(after)


def value_text(value: object) -> str:
    """Returns the value as one line of JSON; `[24 items]` for a long list, empty for a value that
    is too long.
    """
    if value is UNSET:
        return "unset"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= VALUE_CHARS_MAX:
        return text
    if isinstance(value, list):
        return f"[{len(value)} items]"
    return ""


def line_text(value: object) -> str:
    """Returns value_text on a line for itself: cut if it is too long, empty if it is unset."""
    if value is UNSET:
        return ""
    text = value_text(value) or json.dumps(value, ensure_ascii=False)
    if len(text) <= LINE_CHARS_MAX:
        return text
    return text[: LINE_CHARS_MAX - 1] + "…"


def _list_changes(
    before: object,
    after: object,
    path: str,
) -> Iterator[FieldChange]:
    if is_same_json(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*after, *(name for name in before if name not in after)]:
            old = before.get(name, UNSET)
            new = after.get(name, UNSET)
            yield from _list_changes(old, new, _join_path(path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _list_changes(old, new, f"{path}[{at}]")
    else:
        yield FieldChange(path, before, after)


def _join_path(path: str, name: str) -> str:
    if not _PLAIN_KEY.fullmatch(name):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    if path:
        return f"{path}.{name}"
    return name
