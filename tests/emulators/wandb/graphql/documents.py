"""Documents of GraphQL, parsed: one operation, its variables, and the fields that it selects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""[\s,]+|\#[^\n]*|(?P<token>\.\.\.|[A-Za-z_]\w*|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"""
    r"""|\"(?:[^\"\\\n]|\\.)*\"|[{}()\[\]:=!$@|&])"""
)
_LITERALS = {"true": True, "false": False, "null": None}
END = ""


class Unreadable(Exception):
    """The document is none. Its word: what was found, and what would have been right."""


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Selected:
    """A field, or a fragment's selections in place: then `name` is empty. `fragment`: by name."""

    name: str = ""
    alias: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[tuple[str, Any], ...] = ()  # include or skip, and what decides
    selections: tuple[Selected, ...] = ()
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """A variable's type, as far as it matters here. many: it is a list."""

    needed: bool
    many: bool
    default: Any = None

    def value(self, given: Any) -> Any:
        """One value stands for a list of it."""
        value = self.default if given is None else given
        return [value] if self.many and value is not None and not isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Document:
    """kind: query or mutation."""

    kind: str
    name: str
    variables: Mapping[str, Declared]
    selections: tuple[Selected, ...]
    fragments: Mapping[str, tuple[Selected, ...]]


def parse(text: str) -> Document:
    """The first operation of the document. Raises Unreadable."""
    return _Parser(text).document()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._token = next(self._tokens)

    def document(self) -> Document:
        operation: Document | None = None
        fragments: dict[str, tuple[Selected, ...]] = {}
        while self._token != END:
            if self._token == "fragment":
                self._take()
                name = self._take()
                self._expect("on")
                self._take()
                fragments[name] = self._selections()
            else:
                operation = operation or self._operation(fragments)
        if operation is None:
            raise Unreadable("Must provide an operation.")
        return operation

    def _operation(self, fragments: Mapping[str, tuple[Selected, ...]]) -> Document:
        if self._token == "{":
            return Document("query", "", {}, self._selections(), fragments)
        kind = self._take()
        if kind not in ("query", "mutation"):
            raise Unreadable(f'Syntax Error: Unexpected Name "{kind}".')
        name = "" if self._token in "({" else self._take()
        variables: dict[str, Declared] = {}
        if self._took("("):
            while not self._took(")"):
                self._expect("$")
                variable = self._take()
                self._expect(":")
                many, needed = self._type()
                default = self._value() if self._took("=") else None
                variables[variable] = Declared(needed and default is None, many, default)
        return Document(kind, name, variables, self._selections(), fragments)

    def _type(self) -> tuple[bool, bool]:
        """Whether it is a list, and whether it ends with an exclamation mark."""
        many = self._took("[")
        if many:
            self._type()
            self._expect("]")
        else:
            self._take()
        return many, self._took("!")

    def _selections(self) -> tuple[Selected, ...]:
        self._expect("{")
        found: list[Selected] = []
        while not self._took("}"):
            found.append(self._selected())
        return tuple(found)

    def _selected(self) -> Selected:
        if self._took("..."):
            if self._took("on"):
                self._take()
            elif self._token not in "@{":
                name = self._take()
                return Selected(fragment=name, conditions=self._conditions())
            conditions = self._conditions()
            return Selected(conditions=conditions, selections=self._selections())
        name = alias = self._take()
        if self._took(":"):
            name = self._take()
        arguments = self._arguments()
        conditions = self._conditions()
        selections = self._selections() if self._token == "{" else ()
        return Selected(name, alias, arguments, conditions, selections)

    def _conditions(self) -> tuple[tuple[str, Any], ...]:
        found: list[tuple[str, Any]] = []
        while self._took("@"):
            directive = self._take()
            found.append((directive, self._arguments().get("if")))
        return tuple(found)

    def _arguments(self) -> dict[str, Any]:
        return self._pairs(")") if self._took("(") else {}

    def _pairs(self, end: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._took(end):
            name = self._take()
            self._expect(":")
            found[name] = self._value()
        return found

    def _value(self) -> Any:
        if self._took("$"):
            return Variable(self._take())
        if self._took("{"):
            return self._pairs("}")
        if self._took("["):
            found = []
            while not self._took("]"):
                found.append(self._value())
            return found
        token = self._take()
        if token in _LITERALS:
            return _LITERALS[token]
        return json.loads(token) if token[0] in '-"0123456789' else token

    def _take(self) -> str:
        token = self._token
        if token == END:
            raise Unreadable("Syntax Error: Unexpected <EOF>.")
        self._token = next(self._tokens)
        return token

    def _took(self, token: str) -> bool:
        if self._token != token:
            return False
        self._take()
        return True

    def _expect(self, token: str) -> None:
        if not self._took(token):
            raise Unreadable(f'Syntax Error: Expected "{token}", found "{self._token or "<EOF>"}".')


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"Syntax Error: Unexpected character: {text[position]!r}.")
        position = match.end()
        if match["token"] is not None:
            yield match["token"]
    yield END
