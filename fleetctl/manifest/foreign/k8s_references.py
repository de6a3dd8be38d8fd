"""Replaces `$(NAME)` in the command, the arguments and the environment of a container, by
Kubernetes' rule: a name that the environment sets is replaced, any other stays as it is, and `$$`
is a `$`. Pure.

See third_party/forked/golang/expansion of Kubernetes: names are looked up in the definitions above.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fleetctl.manifest.checks.commands import holds_a_reference

_PART = re.compile(r"\$(?:\$|\(([^)]*)\))")


class TextPiece(NamedTuple):
    """A text as it is, or the name of a variable that is known when the work runs."""

    text: str
    later: bool = False


class ContainerEnv:
    """The environment of a container in its order. later: names whose values a run finds out."""

    def __init__(self, later: Sequence[str]) -> None:
        self._later = set(later)
        self.values: dict[str, str] = {}
        self.computed: dict[str, list[TextPiece]] = {}  # variables with a value that is known later

    def comes_later(self, name: str) -> None:
        """Notes a variable whose value is a secret's, or a run's."""
        self.values.pop(name, None)
        self._later.add(name)

    def take_from(self, name: str, other: str) -> None:
        """Notes a variable that has the value of another one, which is known later."""
        self.computed[name] = [TextPiece(other, later=True)]
        self.comes_later(name)

    def add(self, name: str, value: str) -> None:
        """Notes a variable of the file; it may name those above it."""
        pieces = self.pieces(value)
        if any(it.later for it in pieces):
            self.computed[name] = pieces
            self.comes_later(name)
        else:
            self._later.discard(name)
            self.values[name] = "".join(it.text for it in pieces)

    def pieces(self, text: str) -> list[TextPiece]:
        """Splits a text into parts that are known and parts that are known later."""
        return list(_join_pieces(self._pieces(text)))

    def _pieces(self, text: str) -> Iterator[TextPiece]:
        end = 0
        for match in _PART.finditer(text):
            yield TextPiece(text[end : match.start()])
            name = match[1]
            end = match.end()
            if name is None:
                yield TextPiece("$")
            elif name in self._later:
                yield TextPiece(name, later=True)
            else:
                yield TextPiece(self.values.get(name, match[0]))
        yield TextPiece(text[end:])


def work_of(words: Sequence[str], variables: ContainerEnv) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns `command`, or `script` if a shell has to put in values that are known later, and
    `env`.
    """
    split = [variables.pieces(word) for word in words]
    later = any(it.later for pieces in (*split, *variables.computed.values()) for it in pieces)
    command = ["".join(it.text for it in pieces) for pieces in split]
    # A text that looks like a reference is refused in a command, because it would stay unexpanded.
    if not later and not holds_a_reference(command):
        return {"command": command}, variables.values
    lines = [f"export {name}={_quote_pieces(it)}" for name, it in variables.computed.items()]
    lines.append("exec " + " ".join(map(_quote_pieces, split)))
    return {"script": "\n".join(lines)}, variables.values


def _quote_pieces(pieces: Sequence[TextPiece]) -> str:
    """One word as a shell reads it."""
    if not pieces:
        return "''"
    return "".join(f'"${{{it.text}}}"' if it.later else shlex.quote(it.text) for it in pieces)


def _join_pieces(pieces: Iterator[TextPiece]) -> Iterator[TextPiece]:
    text = ""
    for piece in pieces:
        if not piece.later:
            text += piece.text
            continue
        if text:
            yield TextPiece(text)
        text = ""
        yield piece
    if text:
        yield TextPiece(text)
