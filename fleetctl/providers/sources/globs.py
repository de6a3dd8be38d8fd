"""One pattern of an ignore file as an automaton: each character of a path is looked at once,
whatever the two are. An expression of `re` would try `*a*a*a*b` for ever, and nobody else would be
served meanwhile. Pure; called by excludes.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

REPEATS_MAX = 2  # that an expression may have: it tries so many places of each in vain at most


class Sort(Enum):
    ONE = auto()  # a character that an expression tells
    STAR = auto()  # any number within a part of the path
    ALL = auto()  # any number, across parts
    SKIP = auto()  # what follows, two pieces long, may be left out


@dataclass(frozen=True, slots=True)
class Piece:
    """text: of ONE, an expression for one character."""

    sort: Sort
    text: str = ""

    @property
    def expression(self) -> str:
        return {Sort.STAR: "[^/]*", Sort.ALL: ".*"}.get(self.sort, self.text)


class Automaton:
    """Takes what a pattern's pieces say, as `re.Pattern.fullmatch` does. A set of states is a whole
    number: bit n says that the n-th piece comes next.
    """

    def __init__(self, pieces: list[Piece]) -> None:
        pieces = _without_repetition(pieces)
        self._end = 1 << len(pieces)
        self._ones = [
            (1 << at, re.compile(it.text, re.DOTALL))
            for at, it in enumerate(pieces)
            if it.sort is Sort.ONE
        ]
        self._stars = sum(1 << at for at, it in enumerate(pieces) if it.sort is Sort.STAR)
        self._alls = sum(1 << at for at, it in enumerate(pieces) if it.sort is Sort.ALL)
        self._skips = sum(1 << at for at, it in enumerate(pieces) if it.sort is Sort.SKIP)
        self._first = self._with_skips(1)
        self._taking: dict[str, int] = {}  # which pieces take a character, once they were asked

    def fullmatch(self, path: str) -> bool:
        states = self._first
        for character in path:
            taken = (states & self._taking_of(character)) << 1
            stay = states & (self._alls if character == "/" else self._alls | self._stars)
            states = self._with_skips(taken | stay)
            if not states:
                return False
        return bool(states & self._end)

    def _taking_of(self, character: str) -> int:
        found = self._taking.get(character)
        if found is None:
            found = sum(bit for bit, one in self._ones if one.fullmatch(character))
            self._taking[character] = found
        return found

    def _with_skips(self, states: int) -> int:
        """With what is reached without a character."""
        before = 0
        while states != before:
            before = states
            skips = states & self._skips
            states |= (states & (self._stars | self._alls)) << 1 | skips << 1 | skips << 3
        return states


def _without_repetition(pieces: list[Piece]) -> list[Piece]:
    """The same once where it stands twice: `**/**/` is `**/`, and `a***` is `a**`."""
    out: list[Piece] = []
    for piece in pieces:
        out.append(piece)
        if out[-6:-3] == out[-3:] == DEEPER:
            del out[-3:]
        elif len(out) > 1 and out[-1] == out[-2] and piece.sort in (Sort.STAR, Sort.ALL):
            del out[-1]
    return out


def matcher_of(pieces: list[Piece]) -> re.Pattern[str] | Automaton:
    """The quickest that takes no longer for any path."""
    repeats = sum(it.sort in (Sort.STAR, Sort.ALL) for it in pieces)
    return re.compile(expression_of(pieces)) if repeats <= REPEATS_MAX else Automaton(pieces)


def expression_of(pieces: list[Piece]) -> str:
    out, at = [], 0
    while at < len(pieces):
        if pieces[at].sort is Sort.SKIP:
            out.append(f"(?:{pieces[at + 1].expression}{pieces[at + 2].expression})?")
            at += 3
        else:
            out.append(pieces[at].expression)
            at += 1
    return "".join(out)


def pieces_of(glob: str) -> list[Piece]:
    """`*` and `?` stay within a part, `**` crosses parts."""
    out, at = [], 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out += DEEPER
            at += 3
        elif glob.startswith("**", at):
            out.append(Piece(Sort.ALL))
            at += 2
        elif glob[at] == "\\" and at + 1 < len(glob):
            out.append(Piece(Sort.ONE, re.escape(glob[at + 1])))
            at += 2
        elif glob[at] == "[" and "]" in glob[at + 2 :]:
            end = glob.index("]", at + 2)
            inside = glob[at + 1 : end].replace("\\", "\\\\")
            negated = "^" + inside[1:] if inside[0] in "!^" else inside
            out.append(Piece(Sort.ONE, f"[{negated}]"))
            at = end + 1
        elif glob[at] == "*":
            out.append(Piece(Sort.STAR))
            at += 1
        else:
            out.append(Piece(Sort.ONE, "[^/]" if glob[at] == "?" else re.escape(glob[at])))
            at += 1
    return out


# Any directories, or none.
DEEPER = [Piece(Sort.SKIP), Piece(Sort.ALL), Piece(Sort.ONE, "/")]
