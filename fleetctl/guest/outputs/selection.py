"""Decides by their paths which files are outputs, by patterns that are compiled into automata.
Pure.

A pattern begins at the directory in which the work began. `*` and `?` stay within a part of a
path, `**` crosses parts, a pattern that names a directory takes all below it, and `!` takes out
again; the last pattern that fits decides. A pattern with many stars, such as `*a*a*a*b`, is matched
by an automaton: an expression of `re` would try for ever, and all other work would wait meanwhile.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Sequence, Tuple, Union

    # (sort, of ONE an expression for one character)
    GlobPiece = Tuple[int, str]

    Matcher = Union[re.Pattern[str], "Automaton"]


REPEATS_MAX = 2  # of `*` and `**` in an expression; with more, backtracking grows too fast

# The sorts of pieces.
ONE = 0  # a character that an expression matches
STAR = 1  # any number within a part of the path
ALL = 2  # any number, across parts
SKIP = 3  # the next two pieces may be left out

WILD = frozenset("*?[\\")
# Behind a pattern, so that it takes all below a directory of that name.
_BELOW = [(SKIP, ""), (ONE, "/"), (ALL, "")]


class Automaton:
    """Matches a pattern's pieces, as `re.Pattern.fullmatch` does. A set of states is a whole
    number: bit n means that the n-th piece comes next.
    """

    def __init__(self, pieces: list[GlobPiece]) -> None:
        pieces = _without_repetition(pieces)
        self._end = 1 << len(pieces)
        self._ones = [
            (1 << at, re.compile(text, re.DOTALL))
            for at, (sort, text) in enumerate(pieces)
            if sort == ONE
        ]
        self._stars, self._alls, self._skips = (
            sum(1 << at for at, (sort, _) in enumerate(pieces) if sort == wanted)
            for wanted in (STAR, ALL, SKIP)
        )
        self._first = self._with_skips(1)
        self._taking: dict[str, int] = {}  # the pieces that match a character, cached

    def fullmatch(self, path: str) -> bool:
        states = self._first
        for character in path:
            taken = (states & self._find_taking(character)) << 1
            stay = states & (self._alls if character == "/" else self._alls | self._stars)
            states = self._with_skips(taken | stay)
            if not states:
                return False
        return bool(states & self._end)

    def _find_taking(self, character: str) -> int:
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


def _without_repetition(pieces: list[GlobPiece]) -> list[GlobPiece]:
    """The same once where it stands twice: `**/**/` is `**/`, and `a***` is `a**`."""
    out: list[GlobPiece] = []
    for piece in pieces:
        out.append(piece)
        if out[-6:-3] == out[-3:] == DEEPER:
            del out[-3:]
        elif len(out) > 1 and out[-1] == out[-2] and piece[0] in (STAR, ALL):
            del out[-1]
    return out


def matcher_of(pieces: list[GlobPiece]) -> Matcher:
    """Returns the fastest matcher whose time is bounded for any path."""
    repeats = sum(sort in (STAR, ALL) for sort, _ in pieces)
    expression = expression_of(pieces)
    if repeats <= REPEATS_MAX:
        return re.compile(expression, re.DOTALL)
    return Automaton(pieces)


def expression_of(pieces: list[GlobPiece]) -> str:
    out = []
    at = 0
    while at < len(pieces):
        if pieces[at][0] == SKIP:
            out.append(f"(?:{_to_expression(pieces[at + 1])}{_to_expression(pieces[at + 2])})?")
            at += 3
        else:
            out.append(_to_expression(pieces[at]))
            at += 1
    return "".join(out)


def _to_expression(piece: GlobPiece) -> str:
    sort, text = piece
    return {STAR: "[^/]*", ALL: ".*"}.get(sort, text)


def pieces_of(glob: str) -> list[GlobPiece]:
    """Returns the pieces of a glob: `*` and `?` stay within a part, `**` crosses parts."""
    out: list[GlobPiece] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out += DEEPER
            at += 3
        elif glob.startswith("**", at):
            out.append((ALL, ""))
            at += 2
        elif glob[at] == "\\" and at + 1 < len(glob):
            out.append((ONE, re.escape(glob[at + 1])))
            at += 2
        elif glob[at] == "[" and "]" in glob[_class_from(glob, at) :]:
            end = glob.index("]", _class_from(glob, at))
            inside = _PLAIN.sub(r"\\\g<0>", glob[at + 1 : end])
            negated = "^" + inside[1:] if inside[0] in "!^" else inside
            out.append((ONE, _class_of(negated)))
            at = end + 1
        elif glob[at] == "*":
            out.append((STAR, ""))
            at += 1
        else:
            out.append((ONE, "[^/]" if glob[at] == "?" else re.escape(glob[at])))
            at += 1
    return out


def _class_from(glob: str, at: int) -> int:
    """Returns from where the end of a class is searched: a `]` that comes first is in it."""
    return at + 3 if glob[at + 1 : at + 3] in ("!]", "^]") else at + 2


def _class_of(inside: str) -> str:
    """Returns an expression for a class of characters; one that no character fits for a class that
    is none, such as `[z-a]`.
    """
    try:
        re.compile(f"[{inside}]")
    except re.error:
        return r"[^\s\S]"
    return f"[{inside}]"


# In a class these mean themselves; `re` has, or may get, another meaning for them.
_PLAIN = re.compile(r"[\\\[&~|]")
# Any number of directories, also zero.
DEEPER = [(SKIP, ""), (ALL, ""), (ONE, "/")]


class OutputPatterns:
    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules: list[tuple[Matcher, bool]] = []
        self._tops: list[str] = []  # of patterns that take files, the part without wildcards
        self.unmet = [it for it in patterns if not it.startswith("!")]
        self._wanted: dict[int, str] = {}
        for pattern in patterns:
            back_out = pattern.startswith("!")
            text = clean_pattern(pattern.removeprefix("!") if back_out else pattern)
            if not back_out:
                self._tops.append(_literal_top(text))
                self._wanted[len(self._rules)] = pattern
            self._rules.append((matcher_of([*pieces_of(text), *_BELOW]), back_out))

    def takes(self, path: str) -> bool:
        """Returns whether the file is an output. path: relative, with `/` between its parts."""
        taken = False
        for number, (matcher, back_out) in enumerate(self._rules):
            if taken == back_out and matcher.fullmatch(path):
                taken = not back_out
                if taken and self._wanted[number] in self.unmet:
                    self.unmet.remove(self._wanted[number])
        return taken

    def enters(self, directory: str) -> bool:
        """Returns whether a file below the directory may be an output."""
        inside = f"{directory}/"
        return any(
            not top or inside.startswith(f"{top}/") or top.startswith(inside) for top in self._tops
        )


def clean_pattern(pattern: str) -> str:
    """Returns the pattern without `./` in front and slashes behind."""
    text = pattern
    while text.startswith("./"):
        text = text[2:]
    return text.rstrip("/") or "**"


def _literal_top(pattern: str) -> str:
    """Returns the directories, or the file, that the pattern names without a wildcard."""
    parts = []
    for part in pattern.split("/"):
        if WILD.intersection(part):
            break
        parts.append(part)
    return "/".join(parts)
