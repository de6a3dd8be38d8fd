"""Takes a copy of a project's directory: what its ignore files and the manifest leave in.

Called by providers, in a thread: directories may be large. Links that lead out of the tree are
never followed and never copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import Refused
from fleetctl.providers.sources.excludes import DEFAULTS, Excludes

FILES_MAX = 200_000
BYTES_MAX = 20 * 1024**3  # beyond this a volume is the right place
IGNORE_BYTES_MAX = 1024**2  # of one ignore file; larger is no ignore file

_NOTHING = Excludes(())


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays out of a copy. The manifest's own patterns have the last word."""

    own: Excludes
    always: Excludes = _NOTHING
    ignore_files: bool = False  # whether .gitignore and .dockerignore are read

    @classmethod
    def of_project(cls, patterns: Sequence[str]) -> Rules:
        """For a directory that somebody works in."""
        return cls(Excludes(patterns), Excludes(DEFAULTS), ignore_files=True)

    @classmethod
    def of_checkout(cls, patterns: Sequence[str]) -> Rules:
        """For what came out of a repository: all of it is there on purpose."""
        return cls(Excludes(patterns))


def take(origin: Path, target: Path, rules: Rules) -> None:
    """Fill the new directory `target` with regular files, directories, and symlinks that stay
    inside; everything else is left out. Raises Refused when it is too much.
    """
    target.mkdir(mode=0o700)
    size = 0
    for count, (path, relative) in enumerate(walk(origin, rules)):
        copy = target / relative
        if path.is_symlink():
            if stays_inside(path, origin):
                _parent(copy)
                copy.symlink_to(path.readlink())
        elif path.is_dir():
            copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif path.is_file():
            size += path.stat().st_size
            if count > FILES_MAX or size > BYTES_MAX:
                limit = f"{FILES_MAX} files or {BYTES_MAX >> 30} GiB"
                raise Refused(
                    f"the source `{origin}` has more than {limit}",
                    hint="exclude what the task does not need, or keep data on a volume",
                )
            _parent(copy)
            shutil.copy2(path, copy, follow_symlinks=False)


def _parent(copy: Path) -> None:
    """A file may come back in below a directory that stays out."""
    if not copy.parent.exists():
        copy.parent.mkdir(mode=0o700, parents=True)


Chain = tuple[tuple[str, Excludes], ...]  # (directory, its rules), the deepest last


def walk(origin: Path, rules: Rules) -> Iterator[tuple[Path, str]]:
    """(path, path relative to origin) from the top down, without what stays out."""
    waiting: list[tuple[str, Chain]] = [("", ())]
    while waiting:
        below, chain = waiting.pop()
        if rules.ignore_files:
            chain = (*chain, *_ignore_files(origin, below))
        with os.scandir(origin / below) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                relative = os.path.join(below, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                out = _stays_out(relative, rules, chain, is_directory=is_directory)
                if not out:
                    yield Path(entry.path), relative
                if is_directory and (not out or _may_come_back(relative, rules, chain)):
                    waiting.append((relative, chain))


def _stays_out(relative: str, rules: Rules, chain: Chain, *, is_directory: bool) -> bool:
    said = rules.own.decide(relative, is_directory=is_directory)
    for base, ignored in reversed(chain):
        if said is None:
            below = relative[len(base) + 1 :] if base else relative
            said = ignored.decide(below, is_directory=is_directory)
    if said is None:
        said = rules.always.decide(relative, is_directory=is_directory)
    return bool(said)


def _may_come_back(relative: str, rules: Rules, chain: Chain) -> bool:
    """Whether to look into a directory that stays out. Git never does; Docker does."""
    if rules.own.match(relative, is_directory=True) or rules.always.match(
        relative, is_directory=True
    ):
        return False
    return any(isinstance(one, _Docker) and one.takes_back for _, one in chain)


class _Docker(Excludes):
    """The rules of a .dockerignore."""


def _ignore_files(origin: Path, below: str) -> Iterator[tuple[str, Excludes]]:
    directory = origin / below
    if not below and (lines := _lines(directory / ".dockerignore")):
        yield below, _Docker.of_dockerignore(lines)
    if lines := _lines(directory / ".gitignore"):
        yield below, Excludes(lines)


def _lines(path: Path) -> list[str]:
    """The lines of an ignore file; nothing when there is none that can be read."""
    try:
        if path.is_symlink() or path.stat().st_size > IGNORE_BYTES_MAX:
            return []
        return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return []


def stays_inside(link: Path, origin: Path) -> bool:
    """Whether a symlink of the tree at `origin` leads to something in that tree."""
    if link.readlink().is_absolute():
        return False
    top = os.path.realpath(origin)
    return os.path.realpath(link).startswith(top + os.sep)
