"""Decides by their paths which files are outputs. Pure; called by keeping.py.

A pattern begins at the directory in which the work began. `*` and `?` stay within a part of a path,
`**` crosses parts, a pattern that names a directory takes all below it, and `!` takes out again;
the last pattern that fits decides.
"""

from __future__ import annotations

from fleetctl.guest.outputs.globs import ALL, ONE, SKIP, matcher_of, pieces_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from fleetctl.guest.outputs.globs import Matcher

WILD = frozenset("*?[\\")
# Behind a pattern, so that it takes all below a directory of that name.
_BELOW = [(SKIP, ""), (ONE, "/"), (ALL, "")]


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
