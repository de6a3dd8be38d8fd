"""The problems of a manifest, their positions, and their text for users."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

from fleetctl.common.errors import UsageError
from fleetctl.common.finding import Path, Severity
from fleetctl.common.text import CREDENTIAL_NAME, without_credentials
from fleetctl.manifest.plain_scalars import resolve_scalar

# A file with one wrong habit can hold thousands of problems; no user reads further than this.
PROBLEMS_SHOWN_MAX = 100
VALUE_CHARS_MAX = 60  # of a bad value in a message

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(
    frozen=True,
    slots=True,
    order=True,
)
class ManifestProblem:
    """A finding at its position. line and column count from 1; line 0 is the file as a whole,
    column 0 the whole object.
    """

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    severity: Severity = Severity.NEVER

    def __str__(self) -> str:
        where = [escape_text(self.file)] * bool(self.file)
        where += (str(it) for it in (self.line, self.column) if it)
        return f"{':'.join(where)}: {self.message}" if where else self.message

    @classmethod
    def of_document(cls, found: Mapping[str, Any]) -> ManifestProblem:
        """Returns a problem of a reply, which has its fields as JSON."""
        severity = Severity(found.get("severity", Severity.NEVER))
        return cls(**{**found, "severity": severity})


class HasPath(Protocol):
    """An object with the path that problems are reported with."""

    @property
    def path(self) -> str: ...


class ManifestErrors(UsageError):
    """All problems of all documents. Its text is ready for `error: ` in front."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__(format_problems(self.problems))


class PredictedErrors(ManifestErrors):
    """Problems that the manifest alone does not have: other objects may come that fix them."""


def list_shown(problems: Sequence[ManifestProblem]) -> list[ManifestProblem]:
    """Returns the first problems, and the number of others as one more. A policy that denies many
    objects is explained once, at the last of them.
    """
    shown = [*problems[:PROBLEMS_SHOWN_MAX]]
    for number, (it, after) in enumerate(pairwise(shown)):
        if it.severity is after.severity is Severity.DENIED and it.hint == after.hint:
            shown[number] = replace(it, hint="")
    if more := len(problems) - len(shown):
        shown.append(ManifestProblem("", 0, 0, f"and {more:,} more problems"))
    return shown


def format_problems(problems: Sequence[ManifestProblem]) -> str:
    """Returns the problems as lines, ready for `error: ` in front."""
    lines: list[str] = []
    for problem in list_shown(problems):
        lines.append(f"error: {problem}")
        if problem.hint:
            lines.append(f"hint: {problem.hint}")
    return "\n".join(lines).removeprefix("error: ")


def sort_problems(
    problems: Iterable[ManifestProblem], documents: Iterable[HasPath]
) -> list[ManifestProblem]:
    """Sorts problems in the order of the files; problems of other files come last."""
    numbers: dict[str, int] = {}
    for document in documents:
        numbers.setdefault(document.path, len(numbers))
    last = len(numbers)
    return sorted(
        problems, key=lambda it: (numbers.get(it.file, last), it.file, it.line, it.column)
    )


def join_sentences(text: str, more: str) -> str:
    """Joins both in one sentence."""
    if not text or not more:
        return text or more
    return f"{text}{' ' if text.endswith('?') else '; '}{more}"


def escape_text(text: str) -> str:
    """Returns the text without characters that a terminal obeys or that reorder the text."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def path_text(path: Path) -> str:
    """Returns `spec.stages[0].name`; keys that are not plain words are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{shorten_text(word)}"
    return text.removeprefix(".")


def value_text(value: object, path: Path = ()) -> str:
    """The value in backticks, shortened; masked where a key is named like a credential."""
    if hidden := mask_credential(value, path):
        return hidden
    if isinstance(value, dict | list | tuple):
        if not isinstance(value, dict):
            return "a list"
        return "a mapping"
    if isinstance(value, str):
        value = without_credentials(value)
    if isinstance(value, str) and _is_plainly_a_text(value):
        return f"`{shorten_text(value)}`"
    return f"`{shorten_text(json.dumps(value, ensure_ascii=False, default=str))}`"


def mask_credential(value: object, path: Path) -> str:
    """Stars for a value that is named like a credential; empty for any other."""
    named = any(isinstance(part, str) and CREDENTIAL_NAME.search(part) for part in path)
    # Of a Provider's account: a user who mistakes this field has written the credential itself.
    named = named or ("account" in path and str(path[-1]).endswith("Env"))
    return "`***`" if named and not isinstance(value, dict | list | tuple) else ""


def _is_plainly_a_text(value: str) -> bool:
    """Returns False if only quotes distinguish the text from a number or a space."""
    try:
        return isinstance(resolve_scalar(value), str) and value == value.strip()
    except ValueError:
        return False


def yaml_text(text: str) -> str:
    """Returns the text on one line, such that a value of YAML is this text: quoted where it cannot
    stand plainly.
    """
    import yaml

    text = shorten_text(text)
    try:
        plain = yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"key: {text}")
    except yaml.YAMLError:
        plain = False
    return text if plain else quote_text(text)


def quote_text(text: str) -> str:
    """Returns the text as a quoted value of YAML, in the quotes that need fewer escapes."""
    text = shorten_text(text)
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"


def shorten_text(text: str) -> str:
    text = escape_text(text)
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return text[: VALUE_CHARS_MAX - 3] + "..."
