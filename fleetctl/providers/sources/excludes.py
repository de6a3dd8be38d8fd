"""Which files of a source stay out: the patterns of .gitignore, applied at every depth. Pure.

Read by tree.py, which finds the ignore files of a project.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

DEFAULTS = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "__pycache__",
    "*.pyc",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".DS_Store",
)


class Excludes:
    """Rules in order; the last one that fits decides, and `!` takes back in."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [rule for pattern in patterns if (rule := _rule(pattern)) is not None]

    @classmethod
    def of_dockerignore(cls, lines: Sequence[str]) -> Excludes:
        """Docker's patterns begin at the top; `**/` is how they say `at every depth`."""
        return cls([_anchored(line) for line in lines])

    @property
    def takes_back(self) -> bool:
        """Whether a rule begins with `!`, so that something below what stays out may come in."""
        return any(back_in for _, _, back_in in self._rules)

    def match(self, path: str, *, is_directory: bool) -> bool:
        """Whether `path`, relative to the source and with `/` between its parts, stays out."""
        return bool(self.decide(path, is_directory=is_directory))

    def decide(self, path: str, *, is_directory: bool) -> bool | None:
        """As `match`; None when no rule says anything of `path`."""
        out: bool | None = None
        for matcher, only_directories, back_in in self._rules:
            if (is_directory or not only_directories) and matcher.fullmatch(path):
                out = not back_in
        return out


def _anchored(line: str) -> str:
    text = line.strip()
    if not text or text.startswith("#"):
        return ""
    back_in = text.startswith("!")
    bare = text.removeprefix("!").strip().removeprefix("./").strip("/")
    return f"{'!' if back_in else ''}/{bare}" if bare not in ("", ".") else ""


def _rule(pattern: str) -> tuple[re.Pattern[str], bool, bool] | None:
    """(matcher of relative paths, only directories, takes back in); None for blanks and
    comments.
    """
    text = pattern.rstrip()
    if not text or text.startswith("#"):
        return None
    back_in = text.startswith("!")
    text = text.removeprefix("!")
    only_directories = text.endswith("/")
    text = text.rstrip("/")
    # A slash inside or in front ties a pattern to the top; without one it fits at every depth.
    anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    return (
        re.compile(("" if anchored else "(?:.*/)?") + _translate(text)),
        only_directories,
        back_in,
    )


def _translate(glob: str) -> str:
    """A regular expression for one pattern: `*` and `?` stay within a part, `**` crosses parts."""
    out, at = [], 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        elif glob[at] == "\\" and at + 1 < len(glob):
            out.append(re.escape(glob[at + 1]))
            at += 2
        elif glob[at] == "[" and "]" in glob[at + 2 :]:
            end = glob.index("]", at + 2)
            inside = glob[at + 1 : end].replace("\\", "\\\\")
            out.append("[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]")
            at = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(glob[at], re.escape(glob[at])))
            at += 1
    return "".join(out)
