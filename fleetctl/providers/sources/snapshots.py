"""Directories of this machine as they were when objects were applied, kept by their content below
the state directory: what runs get is what the plan told, whatever is edited meanwhile.

Called when manifests are proposed and stored (`look`, `keep`), when a run starts (`path_of`), and
now and then to let go of what no object names (`sweep`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from fleetctl.providers.paths import make_private
from fleetctl.providers.sources.apart import NOTHING_APART, Apart
from fleetctl.providers.sources.revision import APART, Tree, of_copy, of_project
from fleetctl.providers.sources.stats import Stats
from fleetctl.providers.sources.tree import Rules, take

SOURCES = "sources"
STATS = "stats"
STATS_FORMAT = 2  # of what a file there holds
HIDDEN = ".letting-go."
FILES = ".files.json"  # beside the directory, which has its own name
EVERYTHING = ("!*",)  # what a snapshot left out is out already
# A snapshot is taken before the object that names it is stored.
YOUNG_S = 3600.0


class Snapshots:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._place = home / SOURCES

    def look(
        self,
        origin: Path,
        exclude: tuple[str, ...],
        apart: Apart = NOTHING_APART,
        *,
        follow: bool = False,
    ) -> Tree:
        """What the directory holds now; its revision is empty when nobody can tell. Raises Refused
        for a link that cannot be followed.
        """
        exclude = self._without_us(origin, exclude)
        facts = [STATS_FORMAT, str(origin), exclude, follow]
        key = sha256(json.dumps(facts).encode()).hexdigest()[:16]
        stats = Stats(self._place / STATS / f"{key}.json")
        tree = of_project(origin, exclude, stats, apart, follow=follow)
        stats.keep()
        return tree

    def keep(
        self,
        origin: Path,
        exclude: tuple[str, ...],
        tree: Tree,
        apart: Apart = NOTHING_APART,
        *,
        follow: bool = False,
    ) -> Tree:
        """Have a snapshot of the directory, which held `tree` when it was looked at; what the
        snapshot holds. Raises OSError where it cannot be taken, and Refused where it is too much.
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
            rules = Rules.of_project(self._without_us(origin, exclude), follow=follow)
            take(origin, taking / name, rules)
            # What was taken counts: somebody may have saved a file since it was looked at.
            held = of_copy(taking / name, apart)
            if not held.revision:
                return held
            (taking / FILES).write_text(json.dumps(dict(held.files)), encoding="utf-8")
            if self.path_of(held.copy, name) is None:
                taking.rename(self._of(held.copy, name))
        finally:
            shutil.rmtree(taking, ignore_errors=True)
        return replace(held, outside=tree.outside)

    def tree_of(self, copy: str, name: str, apart: Apart) -> Tree:
        """What a snapshot holds; nothing where there is none."""
        found = self.path_of(copy, name)
        return Tree() if found is None else of_copy(found, apart)

    def path_of(self, revision: str, name: str) -> Path | None:
        """Where a snapshot lies, in a directory of that name; None when there is none."""
        found = self._of(revision, name) / name
        return found if found.is_dir() else None

    def files_of(self, revision: str, name: str) -> Mapping[str, str]:
        """The files as in Tree; empty when nobody knows any more."""
        try:
            text = (self._of(revision, name) / FILES).read_text(encoding="utf-8")
            found: dict[str, str] = json.loads(text)
        except (OSError, ValueError):
            return {}
        return found

    def kept(self) -> Iterator[tuple[str, Path]]:
        """(key, its directory) of each snapshot; `key_of` says whose it is."""
        if self._place.is_dir():
            for found in sorted(self._place.iterdir()):
                if found.name != STATS and not found.name.startswith("."):
                    yield found.name, found

    def key_of(self, revision: str, name: str) -> str:
        return self._of(revision, name).name

    def hide(self, key: str, *, unused_since_s: float) -> None:
        """Nobody finds it any more; `sweep` takes it away. One rename. Not where it was kept anew
        since then, in seconds since the epoch.
        """
        found = self._place / key
        if found.is_dir() and found.stat().st_mtime <= unused_since_s:
            found.rename(self._place / f"{HIDDEN}{key}")

    def sweep(self, named: Collection[tuple[str, str]]) -> None:
        """Let go of snapshots that are not among these (revision, name), but for young ones."""
        kept = {self._of(revision, name).name for revision, name in named}
        if not self._place.is_dir():
            return
        for found in self._place.iterdir():
            if found.name == STATS or found.name in kept:
                continue
            hidden = found.name.startswith(HIDDEN)
            if hidden or found.stat().st_mtime < time.time() - YOUNG_S:
                shutil.rmtree(found, ignore_errors=True)

    def _without_us(self, origin: Path, exclude: tuple[str, ...]) -> tuple[str, ...]:
        """A project may hold the state directory, which is not part of it: a copy would hold all
        copies before it, and change by every task.
        """
        home, top = self._place.parent.resolve(), origin.resolve()
        if top not in home.parents:
            return exclude
        inside = home.relative_to(top).as_posix()
        return (*exclude, "/" + re.sub(r"([*?\[\\])", r"\\\1", inside))

    def _of(self, revision: str, name: str) -> Path:
        # The name of a directory may be no UTF-8.
        return self._place / sha256(os.fsencode(f"{revision} {name}")).hexdigest()[:32]


def name_of(origin: Path) -> str:
    """What the directory is called in a sandbox."""
    return origin.resolve().name or "source"


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Files of the program that are not the same, in order."""
    names = (name for name in {*before, *after} if before.get(name) != after.get(name))
    return sorted(it for it in names if not (after.get(it) or before[it]).startswith(APART))
