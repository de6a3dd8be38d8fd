"""Stores by their content, below the state directory, directories of this machine as they were when
objects were applied, and the input files of tasks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fleetctl.manifest.files import fence
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources.excludes import NOTHING_APART, UnrelatedFiles
from fleetctl.providers.sources.revision import APART, FileStats, SourceTree, of_copy, of_project
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree

SOURCES = "sources"
STATS = "stats"
STATS_FORMAT = 3  # version of the content of files in STATS
HIDDEN = ".letting-go."
FILES = ".files.json"  # beside the directory, which has its own name
EVERYTHING = ("!*",)  # a snapshot has no excluded files in it
# A snapshot is taken before the object that names it is stored.
YOUNG_S = 3600.0

INPUTS = "inputs"
BLOCK_BYTES = 512
_PIECE_BYTES = 1024 * 1024


class Snapshots:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._place = home / SOURCES

    def look(
        self,
        origin: Path,
        exclude: tuple[str, ...],
        apart: UnrelatedFiles = NOTHING_APART,
        *,
        follow: bool = False,
    ) -> SourceTree:
        """Returns the tree of the directory now; its revision is "" when it is unknown. Raises
        Refused for a link that cannot be followed.
        """
        exclude = without_state(self._place.parent, origin, exclude)
        facts = [STATS_FORMAT, str(origin), exclude, follow]
        key = sha256(json.dumps(facts).encode()).hexdigest()[:16]
        stats = FileStats(self._place / STATS / f"{key}.json")
        tree = of_project(
            origin,
            exclude,
            stats,
            apart,
            follow=follow,
        )
        stats.keep()
        return tree

    def keep(
        self,
        origin: Path,
        exclude: tuple[str, ...],
        tree: SourceTree,
        apart: UnrelatedFiles = NOTHING_APART,
        *,
        follow: bool = False,
    ) -> SourceTree:
        """Takes a snapshot of the directory, which held `tree` when it was looked at; returns the
        snapshot's tree. Raises OSError where it cannot be taken, and Refused where it is too large.
        """
        if not tree.revision:
            return tree
        name = name_of(origin)
        if self.path_of(tree.copy, name) is not None:
            os.utime(self._of(tree.copy, name))  # somebody is about to name it
            return tree
        make_private(self._place)
        taking = self._place / f".taking.{os.getpid()}.{threading.get_ident()}"
        shutil.rmtree(taking, ignore_errors=True)
        taking.mkdir(mode=0o700)
        try:
            rules = CopyRules.of_project(
                without_state(self._place.parent, origin, exclude), follow=follow
            )
            copy_tree(origin, taking / name, rules)
            # The copy counts: a file may have been saved since the directory was looked at.
            held = of_copy(taking / name, apart)
            if not held.revision:
                return held
            (taking / FILES).write_text(json.dumps(dict(held.files)), encoding="utf-8")
            if self.path_of(held.copy, name) is None:
                taking.rename(self._of(held.copy, name))
        finally:
            shutil.rmtree(taking, ignore_errors=True)
        return replace(held, outside=tree.outside)

    def tree_of(
        self,
        copy: str,
        name: str,
        apart: UnrelatedFiles,
    ) -> SourceTree:
        """Returns the tree of a snapshot; an empty one without it."""
        found = self.path_of(copy, name)
        if found is None:
            return SourceTree()
        return of_copy(found, apart)

    def path_of(self, revision: str, name: str) -> Path | None:
        """Returns the path of a snapshot, in a directory with that name, or None."""
        found = self._of(revision, name) / name
        if found.is_dir():
            return found
        return None

    def files_of(self, revision: str, name: str) -> Mapping[str, str]:
        """Returns the files as in SourceTree; {} when they are unknown."""
        try:
            text = (self._of(revision, name) / FILES).read_text(encoding="utf-8")
            found: dict[str, str] = json.loads(text)
        except (OSError, ValueError):
            return {}
        return found

    def kept(self) -> Iterator[tuple[str, Path]]:
        """Yields (key, its directory) of each snapshot; `key_of` names its owner."""
        if self._place.is_dir():
            for found in sorted(self._place.iterdir()):
                if found.name != STATS and not found.name.startswith("."):
                    yield found.name, found

    def key_of(self, revision: str, name: str) -> str:
        return self._of(revision, name).name

    def hide(self, key: str, *, unused_since_s: float) -> None:
        """Hides a snapshot from all callers; `sweep` removes it. One rename. Not where it was kept
        again since then, in seconds since the epoch.
        """
        found = self._place / key
        if found.is_dir() and found.stat().st_mtime <= unused_since_s:
            found.rename(self._place / f"{HIDDEN}{key}")

    def sweep(self, named: Collection[tuple[str, str]]) -> None:
        """Removes snapshots that are not among these (revision, name), except young ones."""
        kept = {self._of(revision, name).name for revision, name in named}
        if not self._place.is_dir():
            return
        for found in self._place.iterdir():
            if found.name == STATS or found.name in kept:
                continue
            hidden = found.name.startswith(HIDDEN)
            if hidden or found.stat().st_mtime < time.time() - YOUNG_S:
                shutil.rmtree(found, ignore_errors=True)

    def _of(self, revision: str, name: str) -> Path:
        # The name of a directory may be no UTF-8.
        return self._place / sha256(os.fsencode(f"{revision} {name}")).hexdigest()[:32]


def without_state(
    home: Path,
    origin: Path,
    exclude: tuple[str, ...],
) -> tuple[str, ...]:
    """Excludes the state directory, which a project may hold: a copy would hold all copies before
    it, and change by every task.
    """
    home, top = home.resolve(), origin.resolve()
    if top not in home.parents:
        return exclude
    inside = home.relative_to(top).as_posix()
    return (*exclude, "/" + re.sub(r"([*?\[\\])", r"\\\1", inside))


def name_of(origin: Path) -> str:
    """Returns the directory's name in a sandbox."""
    return origin.resolve().name or "source"


def list_differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Files of the program that are not the same, in order."""
    names = (name for name in {*before, *after} if before.get(name) != after.get(name))
    return sorted(it for it in names if not (after.get(it) or before[it]).startswith(APART))


class ContentMoved(Exception):
    """A file has no longer the content that it was read with."""


class StoredContent(NamedTuple):
    """A content that is kept. bytes: on the disk; kept_s: when an object last named it."""

    digest: str
    bytes: int
    kept_s: float


class InputFiles:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._place = home / INPUTS

    def keep(self, digest: str, origin: str) -> None:
        """Stores the file, unless its content is here. Raises ContentMoved, and OSError."""
        target = self._of(digest)
        if target.exists():
            os.utime(target)  # an object is about to name it
            return
        make_private(self._place)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        taking = self._place / f".taking.{os.getpid()}.{threading.get_ident()}"
        taken = sha256()
        try:
            with fence.open_regular(origin) as content, taking.open("wb") as file:
                while piece := content.read(_PIECE_BYTES):
                    taken.update(piece)
                    file.write(piece)
            if taken.hexdigest() != digest:
                raise ContentMoved
            taking.chmod(0o400)
            taking.rename(target)  # a file that exists is whole
        finally:
            taking.unlink(missing_ok=True)

    def path_of(self, digest: str) -> Path | None:
        """Returns the path of a stored content, or None."""
        found = self._of(digest)
        if found.exists():
            return found
        return None

    def listed(self) -> list[StoredContent]:
        """Returns all contents."""
        found = []
        for path in self._stored():
            looks = path.stat()
            if not path.name.startswith("."):
                size = looks.st_blocks * BLOCK_BYTES
                found.append(StoredContent(path.name, size, looks.st_mtime))
        return found

    def drop(self, digest: str, *, unused_since_s: float) -> None:
        """Deletes a content, unless it was kept again since then."""
        path = self._of(digest)
        with suppress(FileNotFoundError):
            if path.stat().st_mtime <= unused_since_s:
                path.unlink()

    def sweep(self, named: Collection[str]) -> None:
        """Removes contents that are not among these digests, except young ones."""
        old_s = time.time() - YOUNG_S
        for path in self._stored():
            if path.name not in named and path.stat().st_mtime < old_s:
                path.unlink(missing_ok=True)

    def _stored(self) -> Iterator[Path]:
        if self._place.is_dir():
            for part in self._place.iterdir():
                if part.name.startswith("."):
                    yield part  # of a process that was killed as it took it
                else:
                    yield from part.iterdir()

    def _of(self, digest: str) -> Path:
        return self._place / digest[:2] / digest
