"""A mapping of another tool's file that remembers which of its fields were taken out.

Fields that no converter took are reported at the end, so that no field is lost silently. Values are
never reported: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

NAME_CHARS_MAX = 63
_NO_COUNTERPART = "has no counterpart here"
_MISFIT = re.compile(r"[^a-z0-9]+")
_LAST = re.compile(r"(\.[^.\[\]]*|\[\d+\])$")


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """The location of a document: its file, and the lines of its fields by path."""

    file: str
    lines: Mapping[str, int]

    def at(self, path: str) -> str:
        """Returns `task.yaml:4: `, the prefix of a remark on the field at a path, or on its nearest
        parent.
        """
        while path and path not in self.lines:
            shorter = _LAST.sub("", path)
            path = shorter if shorter != path else ""
        return f"{self.file}:{self.lines.get(path, 1)}: "


class ConversionOptions(NamedTuple):
    """Options of a conversion. name: name for a document without one. old_names: programs find the
    other tool's variables, too.
    """

    name: str
    old_names: bool = False


class ForeignMapping:
    """A mapping of a foreign file. `remarks` is shared by all parts of a file."""

    def __init__(
        self,
        data: Mapping[str, Any],
        remarks: list[str],
        origin: DocumentLines,
        path: str = "",
    ) -> None:
        self._left = dict(data)
        self._notes = remarks
        self._origin = origin
        self._path = path
        self._parts: list[ForeignMapping] = []

    @property
    def place(self) -> str:
        """Returns `task.yaml:4: `, where the document begins."""
        return self._origin.at("")

    def take(self, key: str, *types: type) -> Any:
        """Takes the value, once; None when it is absent, null or, with a remark, of
        another type.
        """
        value = self._left.pop(key, None)
        if value is None or not types:
            return value
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if not fits:
            self.say(key, "is not of a type that can be read, and is left out")
        if fits:
            return value
        return None

    def peek(self, key: str) -> Any:
        """The value, which stays to be taken."""
        return self._left.get(key)

    def text(self, key: str) -> str | None:
        """A scalar as text."""
        value = self.take(key, str, int, float)
        if value is None:
            return None
        return str(value)

    def part(self, key: str) -> ForeignMapping:
        """Takes the mapping below; an empty one when it is absent."""
        value = self.take(key, dict)
        return self._part(key, value or {})

    def parts(self, key: str) -> list[ForeignMapping]:
        """The mappings in the list below."""
        found = []
        for number, value in enumerate(self.take(key, list) or []):
            if isinstance(value, dict):
                found.append(self._part(f"{key}[{number}]", value))
            else:
                self.say(f"{key}[{number}]", "is not a mapping, and is left out")
        return found

    def leave(self, why: str, *keys: str) -> None:
        """Reports why the given fields are left out, as far as they are there."""
        for key in keys:
            if self._left.pop(key, None) is not None:
                self.say(key, why)

    def say(self, key: str, why: str) -> None:
        path = f"{self._path}.{key}" if self._path and key else self._path or key
        at = self._origin.at(path)
        self._notes.append(f"{at}`{path}` {why}" if path else f"{at}{why}")

    def drain(self, *, keep_null: bool = False) -> dict[str, Any]:
        """Takes all fields that are left, at once."""
        found = {key: it for key, it in self._left.items() if keep_null or it is not None}
        self._left.clear()
        return found

    def fill(self, values: Mapping[str, Any]) -> None:
        """Add fields that stand elsewhere in the file, to be taken like its own."""
        self._left |= values

    def forget(self) -> None:
        """Drops the fields in here without remarks."""
        self._left.clear()
        self._parts.clear()

    def finish(self) -> None:
        """Reports every field that was not taken, here and below."""
        for key in [key for key, value in self._left.items() if value is not None]:
            self.leave(_NO_COUNTERPART, key)
        for part in self._parts:
            part.finish()

    def __contains__(self, key: str) -> bool:
        return self._left.get(key) is not None

    def __bool__(self) -> bool:
        return any(value is not None for value in self._left.values())

    def _part(self, key: str, value: Mapping[str, Any]) -> ForeignMapping:
        path = f"{self._path}.{key}" if self._path else key
        part = ForeignMapping(value, self._notes, self._origin, path)
        self._parts.append(part)
        return part


# A manifest, with the document that it was made of.
Converted = tuple[ForeignMapping, dict[str, Any]]


def make_name(text: str | None, otherwise: str) -> str:
    """A name that an object can have, as near to `text` as can be."""
    for given in (text, otherwise, "converted"):
        name = _MISFIT.sub("-", (given or "").lower())[:NAME_CHARS_MAX].strip("-")
        if name:
            return name
    raise AssertionError


def build_manifest(
    kind: str,
    name: str,
    spec: Mapping[str, Any],
    **metadata: Any,
) -> dict[str, Any]:
    """Builds a manifest without empty values at the top of its spec and template."""
    from fleetctl.specs.kinds.registry import API_VERSION

    filled = {"name": name, **{key: value for key, value in metadata.items() if value}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": filled, "spec": drop_empty(spec)}


def drop_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drops empty values and None; zero and False stay."""
    return {key: it for key, it in values.items() if it is not None and it not in ("", [], {}, ())}
