"""Replaces `${{ name }}` in the values of a document. Keys, `apiVersion`, `kind` and `status` hold
no references.

A value that is only a reference becomes the variable's value, of its type; inside a longer text the
value stands as text. `$${{` is the text `${{`. There are no expressions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.findings import suggest_name
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX, shorten_text

OPENING = "${{"
_REFERENCE = re.compile(r"\$\$\{\{|\$\{\{([^{}\n]*)\}\}|\$\{\{")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Fields of a document as a whole: those that select its model, and those that are not read.
_KEPT = frozenset({"apiVersion", "kind", "status"})


class VariableValue(Protocol):
    """A variable with the value to put in."""

    value: Any
    size: int  # of the value, about, in characters

    def use(self) -> bool:
        """Marks the variable as used; returns False if it has no value to put in."""
        ...


@dataclass(slots=True)
class ExpansionLimit:
    """The characters that may still be inserted: each reference repeats its value, and a file must
    not be a bomb.
    """

    left: int = 32 * 1024 * 1024  # four times the largest file
    hints: int = PROBLEMS_SHOWN_MAX  # no user reads more, and each takes a look at all names

    def hint(self, word: str, known: Iterable[str]) -> str:
        self.hints -= 1
        if self.hints >= 0:
            return suggest_name(word, list(known))
        return ""


@dataclass(slots=True)
class VariableSubstitution:
    """Puts variables into trees.

    room: characters that a whole load shares. found: faults of references. broken: paths of values
    that were left unchanged. used: inserted names, by path.
    """

    variables: Mapping[str, VariableValue]
    room: ExpansionLimit = field(default_factory=ExpansionLimit)
    found: list[Finding] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)
    used: dict[Path, list[str]] = field(default_factory=dict)

    def fill(self, data: dict[str, Any], at: Path = ()) -> None:
        """Fills a manifest, or a part, which is changed. at: its path in the document."""
        for key, value in data.items():
            if key not in _KEPT:
                self._entry(data, key, value, at)

    def _entry(
        self,
        holder: Any,
        key: str | int,
        value: Any,
        path: Path,
    ) -> None:
        """Fills one value of a mapping or list. Most need no change, and are passed
        over at once.
        """
        if isinstance(value, str):
            if OPENING in value:
                holder[key] = self._text(value, (*path, key))
        elif isinstance(value, dict):
            here = (*path, key)
            for name, inner in value.items():
                if inner.__class__ is not str or OPENING in inner:
                    self._entry(value, name, inner, here)
                if OPENING in name:
                    message = f" is a key, and `{OPENING} ... }}}}` belongs in values alone"
                    self._refuse(Finding((*here, name), message, at_key=True))
        elif isinstance(value, list):
            here = (*path, key)
            for number, inner in enumerate(value):
                if inner.__class__ is not str or OPENING in inner:
                    self._entry(value, number, inner, here)

    def _fits(self, variable: VariableValue, path: Path) -> bool:
        """Returns True if the value fits into the characters that are left; reports the first that
        does not.
        """
        before, self.room.left = self.room.left, self.room.left - variable.size
        if self.room.left >= 0:
            return True
        self.broken.add(path)
        if before >= 0:
            message = " is where values of variables become too much: 32 MiB in all may be put in"
            self.found.append(Finding(path, message, "keep data in `tasks.fromFile`"))
        return False

    def _refuse(self, finding: Finding) -> None:
        self.found.append(finding)
        self.broken.add(finding.where)

    def _text(self, text: str, path: Path) -> Any:
        """The text with its references resolved, or the value of the one that it is."""
        pieces: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            pieces.append(text[end : match.start()])
            end = match.end()
            if match[0] == "$" + OPENING:
                pieces.append(OPENING)
                continue
            row = text.count("\n", 0, match.start()) + 1
            name = (match[1] or "").strip()
            finding = _check_reference(match, name, path, row)
            if finding is None and name not in self.variables:
                message = f" holds `{shorten_text(match[0])}`, and no variable `{name}` is declared"
                hint = self.room.hint(name, self.variables)
                finding = Finding(path, message, hint, row=row)
            if finding is not None:
                self._refuse(finding)
                continue
            variable = self.variables[name]
            if not variable.use():
                self.broken.add(path)
                continue
            if not self._fits(variable, path):
                return text
            self.used.setdefault(path, []).append(name)
            if match[0] == text:
                return deepcopy(variable.value)
            if isinstance(variable.value, dict | list):
                sort = "a list" if isinstance(variable.value, list) else "a mapping"
                message = f" holds `{match[0]}` in a longer text, and its value is {sort}"
                hint = f"write `{match[0]}` alone"
                self._refuse(Finding(path, message, hint, row=row))
                continue
            pieces.append(as_text(variable.value))
        return "".join((*pieces, text[end:]))


def plain_references(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yields the paths of `${{ name }}` in a tree, with a name that a variable could have."""
    if isinstance(value, str):
        for match in _REFERENCE.finditer(value) if OPENING in value else ():
            if match[1] is not None and _NAME.fullmatch(match[1].strip()):
                yield path, match[1].strip()
    elif isinstance(value, dict):
        for key, inner in value.items():
            if path or key not in _KEPT:
                yield from plain_references(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from plain_references(inner, (*path, at))


def _check_reference(
    match: re.Match[str],
    name: str,
    path: Path,
    row: int,
) -> Finding | None:
    """Returns the finding for a text that is not a valid reference."""
    if match[1] is None:
        message = f" holds `{OPENING}` without its `}}}}`"
        return Finding(path, message, f"write `${OPENING}` where the text is meant", row=row)
    shown = shorten_text(match[0])
    if not _NAME.fullmatch(name):
        message = f" holds `{shown}`, and `{shorten_text(name)}` is not the name of a variable"
        hint = f"there are no expressions; write `${shown}` where the text is meant"
        return Finding(path, message, hint, row=row)
    return None


def size_of(value: Any) -> int:
    """Returns about how many characters the value takes."""
    size = 0
    level = [value]
    while level:
        size += sum(16 + (len(it) if isinstance(it, str) else 0) for it in level)
        level = [
            inner
            for it in level
            if isinstance(it, dict | list)
            for inner in (it.values() if isinstance(it, dict) else it)
        ]
    return size


def as_text(value: Any) -> str:
    """Returns the value as a manifest would write it: `true`, `3`, `0.5`."""
    if isinstance(value, str):
        return value
    return json.dumps(value)
