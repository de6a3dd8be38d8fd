"""Decides which files of a source stay out: by the patterns of .gitignore and of the manifest, and
those that are not part of the program.

A copy has them; the comparison of a source does not, unless the manifest's own `exclude` takes
them back in.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.guest.outputs.selection import DEEPER, Automaton, matcher_of, pieces_of

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

# (size, time of the last change in nanoseconds) of a file, as it was when we wrote it.
Written = tuple[int, int]
SUFFIXES = (".yaml", ".yml", ".json")
MANIFEST_BYTES_MAX = 8 << 20  # a larger file is never read as a manifest

_OURS = re.compile(
    rb"""(?:^|[{,])[ \t\r\n]*(["']?)apiVersion\1[ \t]*:[ \t]*["']?fleetctl\.dev/""", re.MULTILINE
)


class Excludes:
    """Rules in order; the last one that fits decides, and `!` takes back in.

    As in git, a rule applies to a path alone: an entry of an excluded directory is excluded with
    it, and no rule can take it back.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [rule for pattern in patterns if (rule := _compile_rule(pattern)) is not None]
        matchers = [matcher for matcher, _, _ in self._rules]
        # Most paths meet no rule at all, which one expression finds sooner than all rules.
        every = "|".join(f"(?:{it.pattern})" for it in matchers if isinstance(it, re.Pattern))
        self._any: list[re.Pattern[str] | Automaton] = [
            it for it in matchers if isinstance(it, Automaton)
        ]
        self._any += [re.compile(every, re.DOTALL)] if every else []

    def match(self, path: str, *, is_directory: bool) -> bool:
        """Returns whether `path`, relative to the source and with `/` between its parts, stays
        out.
        """
        return bool(self.decide(path, is_directory=is_directory))

    def decide(self, path: str, *, is_directory: bool) -> bool | None:
        """Returns whether `path` is left out, as `match` decides; None when no rule applies to
        `path`.
        """
        out: bool | None = None
        if not any(it.fullmatch(path) for it in self._any):
            return out
        for matcher, only_directories, back_in in self._rules:
            if (is_directory or not only_directories) and matcher.fullmatch(path):
                out = not back_in
        return out


class DockerExcludes:
    """The rules of a .dockerignore; the last one that fits decides.

    As in Docker, a rule begins at the top of the source (`**/` means `at every depth`) and applies
    to all below the path that it names, which a later `!` takes back file by file.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._rules = [
            (matcher, back_in, text)
            for line in lines
            if (text := _anchor_line(line)) and (rule := _compile_rule(text)) is not None
            for matcher, _, back_in in (rule,)
        ]
        self._back_in = [text.removeprefix("!/") for _, back_in, text in self._rules if back_in]

    def decide(self, path: str, *, below: str = "") -> bool | None:
        """Returns whether `path` stays out; None when no rule applies to it. Rules about the
        directory `below` and its parents are ignored.
        """
        spoken_of = [path]
        while len(path := posixpath.dirname(path)) > len(below):
            spoken_of.append(path)
        out: bool | None = None
        for matcher, back_in, _ in self._rules:
            if any(map(matcher.fullmatch, spoken_of)):
                out = not back_in
        return out

    def takes_back_below(self, directory: str) -> bool:
        """Returns whether a `!` may apply to a file in this directory. With wildcards it always
        may.
        """
        return any(
            bool(_WILD.search(text)) or text.startswith(f"{directory}/") for text in self._back_in
        )


_WILD = re.compile(r"[*?\[\\]")


def _anchor_line(line: str) -> str:
    if line.startswith("#") or not (text := line.strip()):
        return ""
    back_in = text.startswith("!")
    bare = posixpath.normpath(text.removeprefix("!").strip() or ".").lstrip("/")
    if bare not in ("", "."):
        return f"{'!' if back_in else ''}/{bare}"
    return ""


def _compile_rule(pattern: str) -> tuple[re.Pattern[str] | Automaton, bool, bool] | None:
    """Returns (matcher of relative paths, only directories, takes back in); None for blanks and
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
        matcher_of([*([] if anchored else DEEPER), *pieces_of(text)]),
        only_directories,
        back_in,
    )


@dataclass(frozen=True, slots=True)
class UnrelatedFiles:
    """names: relative paths of files that the manifest was read from. written: relative path -> how
    a file was when fleetctl wrote it. own: the patterns of `exclude`.
    """

    names: Collection[str] = ()
    written: Mapping[str, Written] = field(default_factory=dict)
    own: Excludes = field(default_factory=lambda: Excludes(()))
    manifests: bool = True  # whether manifests of others are left out of the program too

    def has(
        self,
        relative: str,
        found: os.stat_result,
        *,
        manifest: bool,
    ) -> bool:
        """Returns whether a file is apart from the program. manifest: its content is one of
        ours.
        """
        is_apart = (
            relative in self.names
            or (manifest and self.manifests)
            or self.written.get(relative) == (found.st_size, found.st_mtime_ns)
        )
        return is_apart and self.own.decide(relative, is_directory=False) is not False


NOTHING_APART = UnrelatedFiles(manifests=False)


def is_manifest(name: str, content: bytes) -> bool:
    """Returns whether a file declares an object of ours."""
    if not name.endswith(SUFFIXES) or len(content) > MANIFEST_BYTES_MAX:
        return False
    return _OURS.search(content) is not None
