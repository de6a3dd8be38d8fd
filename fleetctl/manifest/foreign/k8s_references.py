"""Replaces `$(NAME)` in the command, the arguments and the environment of a container. Pure.

The rule is Kubernetes', see its third_party/forked/golang/expansion: the name of a variable that is
defined above is replaced, any other name stays as it is, and `$$` is a `$`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fleetctl.manifest.checks.commands import holds_a_reference

_PART = re.compile(r"\$(?:\$|\(([^)]*)\))")


class TextPiece(NamedTuple):
    """A part of a text: literal, or (later) the name of a variable whose value only a run knows."""

    text: str
    later: bool = False


class ContainerEnv:
    """The variables of a container, in the order of their definitions.

    later: names of variables whose values only a run knows. values: the known values by name.
    """

    def __init__(self, later: Sequence[str]) -> None:
        self._later = set(later)
        self.values: dict[str, str] = {}
        self.computed: dict[str, list[TextPiece]] = {}  # values with a part that only a run knows

    def mark_later(self, name: str) -> None:
        """Adds a variable whose value only a run knows: one of a Secret, or of the run itself."""
        self.values.pop(name, None)
        self._later.add(name)

    def copy_later(self, name: str, other: str) -> None:
        """Adds a variable that has the value of the variable `other`, which only a run knows."""
        self.computed[name] = [TextPiece(other, later=True)]
        self.mark_later(name)

    def add(self, name: str, value: str) -> None:
        """Adds a variable with a value from the file, which may refer to variables above it."""
        pieces = self.pieces(value)
        if any(it.later for it in pieces):
            self.computed[name] = pieces
            self.mark_later(name)
        else:
            self._later.discard(name)
            self.values[name] = "".join(it.text for it in pieces)

    def pieces(self, text: str) -> list[TextPiece]:
        """Splits a text at its references; references with a known value are replaced."""
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


def build_work(
    words: Sequence[str], variables: ContainerEnv
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns (the field `command`, or `script` where a shell has to insert values that only a run
    knows; the variables with known values).
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
    """Returns a word in the syntax of a POSIX shell, with its later parts as `"${NAME}"`."""
    if not pieces:
        return "''"
    return "".join(f'"${{{it.text}}}"' if it.later else shlex.quote(it.text) for it in pieces)


def _join_pieces(pieces: Iterator[TextPiece]) -> Iterator[TextPiece]:
    """Yields the pieces with adjacent literal ones as one, and without empty ones."""
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
