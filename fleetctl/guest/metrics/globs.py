"""Finds the files that a pattern of `metrics.path` names. Called by files.py and events.py at every
look, by a supervisor that does no other work meanwhile: each look visits a bounded number of
entries, and a name is compared by guest/outputs/globs.py, in a time that is linear in its length.

As a shell has it: `*`, `?` and `[...]` stay within a name, `**` is any number of directories, and
neither is a name that begins with a dot. `**` follows no links, which may lead round in circles.
"""

from __future__ import annotations

import os
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleetctl.guest.outputs.globs import Matcher

DEEPER = "**"
WILD = "*?["
FILES_MAX = 100
ENTRIES_MAX = 10_000  # of directories that are looked through for files


def find_matches(path: str) -> tuple[list[str], bool]:
    """Returns (the existing paths of a path or a pattern such as `runs/*`, sorted; whether others
    were not looked at). The least deep ones are found first.
    """
    parts = [part for part in path.split("/") if part]
    plain = next((at for at, it in enumerate(parts) if _is_wild(it)), None)
    if plain is None:
        return ([path] if os.path.lexists(path) else []), False
    top = "/" * path.startswith("/") + "/".join(parts[:plain])
    search = _Search(
        [it for at, it in enumerate(parts[plain:]) if not _is_repeated(parts[plain:], at)]
    )
    search.walk(top)
    return sorted(search.found)[:FILES_MAX], search.left <= 0


class _Search:
    """left: entries that may still be looked at."""

    def __init__(self, parts: list[str]) -> None:
        self.found: set[str] = set()
        self.left = ENTRIES_MAX
        self._parts = parts
        self._matchers: list[Optional[Matcher]] = [compile_name(it) for it in parts]
        self._ahead: deque[tuple[str, int]] = deque()
        self._seen: set[tuple[str, int]] = set()

    def walk(self, top: str) -> None:
        self._reach(top, 0)
        while self._ahead and self.left > 0:
            self.left -= 1
            directory, at = self._ahead.popleft()
            if _is_wild(self._parts[at]):
                self._look_through(directory, at)
            elif os.path.lexists(inside := os.path.join(directory, self._parts[at])):
                self._reach(inside, at + 1)

    def _reach(self, path: str, at: int) -> None:
        """Takes a path that fits all parts before `at`."""
        if at == len(self._parts):
            self.found.add(path)
        elif (path, at) not in self._seen:
            self._seen.add((path, at))
            self._ahead.append((path, at))

    def _look_through(self, directory: str, at: int) -> None:
        if self._parts[at] == DEEPER:
            self._reach(directory, at + 1)
        try:
            with os.scandir(directory or ".") as entries:
                for entry in entries:
                    self.left -= 1
                    if self.left < 0:
                        return
                    self._take(os.path.join(directory, entry.name), entry, at)
        except OSError:
            return  # no directory, or gone by now

    def _take(
        self,
        path: str,
        entry: os.DirEntry[str],
        at: int,
    ) -> None:
        if self._parts[at] == DEEPER:
            if entry.name.startswith("."):
                return
            if entry.is_dir(follow_symlinks=False):
                self._reach(path, at)
            if at + 1 == len(self._parts):
                self._reach(path, at + 1)
            return
        matcher = self._matchers[at]
        hidden = entry.name.startswith(".") and not self._parts[at].startswith(".")
        if matcher is not None and not hidden and matcher.fullmatch(entry.name):
            self._reach(path, at + 1)


def compile_name(part: str) -> Optional[Matcher]:
    """Returns the matcher of a part of a pattern; None for a part that is one name."""
    if not _is_wild(part):
        return None
    from fleetctl.guest.outputs.globs import matcher_of, pieces_of

    return matcher_of(pieces_of(part))


def _is_wild(part: str) -> bool:
    return any(it in part for it in WILD)


def _is_repeated(parts: list[str], at: int) -> bool:
    return parts[at] == DEEPER and parts[at + 1 : at + 2] == [DEEPER]
