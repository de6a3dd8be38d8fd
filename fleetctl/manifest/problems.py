"""What is wrong with a manifest, where, and how such things are written for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetctl.common.errors import UsageError
from fleetctl.manifest.plain import resolve

# A file with one wrong habit can hold thousands of problems; nobody reads further than this.
PROBLEMS_SHOWN_MAX = 100
VALUE_CHARS_MAX = 60  # of a bad value in a message

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
CREDENTIAL_NAME = re.compile(
    r"(?:^|[_\-.])(?:api_?key|access_?key|key|token|secret|passw(?:or)?d|credentials?)(?:$|[_\-.])",
    re.I,
)

_URL_USER = re.compile(r"//[^/\s@]+@")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """line and column count from 1; 0 means the file as a whole."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = escaped(self.file) + (f":{self.line}:{self.column}" if self.line else "")
        return f"{where}: {self.message}"


class Named(Protocol):
    """What has a path that problems are told with."""

    @property
    def path(self) -> str: ...


class ManifestErrors(UsageError):
    """All problems of all documents. Its text is ready for `error: ` in front of it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__(_text(self.problems))


def _text(problems: tuple[Problem, ...]) -> str:
    lines: list[str] = []
    for problem in problems[:PROBLEMS_SHOWN_MAX]:
        lines.append(f"error: {problem}")
        if problem.hint:
            lines.append(f"hint: {problem.hint}")
    if len(problems) > PROBLEMS_SHOWN_MAX:
        lines.append(f"error: and {len(problems) - PROBLEMS_SHOWN_MAX:,} more problems")
    return "\n".join(lines).removeprefix("error: ")


def in_order(problems: Iterable[Problem], documents: Iterable[Named]) -> list[Problem]:
    """As the files were named; what stands in others comes last."""
    numbers: dict[str, int] = {}
    for document in documents:
        numbers.setdefault(document.path, len(numbers))
    last = len(numbers)
    return sorted(
        problems, key=lambda it: (numbers.get(it.file, last), it.file, it.line, it.column)
    )


def joined(text: str, more: str) -> str:
    """Both in one sentence."""
    if not text or not more:
        return text or more
    return f"{text}{' ' if text.endswith('?') else '; '}{more}"


def escaped(text: str) -> str:
    """The text without anything that a terminal obeys or that reorders what is read."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def path_text(path: Path) -> str:
    """`spec.stages[0].name`; keys that are not plain words are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{shortened(word)}"
    return text.removeprefix(".")


def value_text(value: object, path: Path = ()) -> str:
    """The value in backticks, shortened; masked where a key is named like a credential."""
    if hidden := masked(value, path):
        return hidden
    if isinstance(value, dict | list | tuple):
        return "a list" if not isinstance(value, dict) else "a mapping"
    if isinstance(value, str):
        value = _URL_USER.sub("//***@", value)
    if isinstance(value, str) and _is_plainly_a_text(value):
        return f"`{shortened(value)}`"
    return f"`{shortened(json.dumps(value, ensure_ascii=False, default=str))}`"


def masked(value: object, path: Path) -> str:
    """Stars for a value that is named like a credential; empty for any other."""
    named = any(isinstance(part, str) and CREDENTIAL_NAME.search(part) for part in path)
    # Of a Provider's account: who mistakes what belongs there has written the credential itself.
    named = named or ("account" in path and str(path[-1]).endswith("Env"))
    return "`***`" if named and not isinstance(value, dict | list | tuple) else ""


def _is_plainly_a_text(value: str) -> bool:
    """False where only quotes tell the text from a number or a space."""
    try:
        return isinstance(resolve(value), str) and value == value.strip()
    except ValueError:
        return False


def shortened(text: str) -> str:
    text = escaped(text)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 3] + "..."
