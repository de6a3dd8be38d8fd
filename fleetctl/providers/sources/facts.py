"""What is known of one commit of a repository without its files: the id of the directory that a
source takes, and what a clone of it would lack. Called when a manifest is proposed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fleetctl.providers.sources import git
from fleetctl.specs.blocks.template import GitSource
from fleetctl.specs.content import TREE

NAMES_MAX = 100  # of files that are kept in Git LFS; more are counted
KEPT_MAX = 1000  # commits of which this is remembered, as they never change
_SUBMODULE = "160000"


@dataclass(frozen=True, slots=True)
class Facts:
    """tree: what the source takes, as git's own id. lfs: files of it that Git LFS keeps, and how
    many there are. submodules: directories of it.
    """

    tree: str = ""
    lfs: tuple[str, ...] = ()
    lfs_count: int = 0
    submodules: tuple[str, ...] = ()

    @property
    def revision(self) -> str:
        return f"{TREE}{self.tree}" if self.tree else ""


class CommitFacts:
    """place: a directory of the state directory, where facts are kept."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def of(self, source: GitSource, commit: str) -> Facts:
        """Raises Refused for a path that the commit does not have, and Unavailable."""
        key = sha256(f"{source.url}\n{commit}\n{source.path}".encode()).hexdigest()[:32]
        kept = self._place / f"{key}.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            return _facts_from(json.loads(kept.read_text(encoding="utf-8")))
        found = await facts_of(source, commit)
        with contextlib.suppress(OSError):
            self._keep(kept, found)
        return found

    def _keep(self, kept: Path, found: Facts) -> None:
        self._place.mkdir(mode=0o700, exist_ok=True)  # where there is no state, nothing is kept
        old = sorted(self._place.iterdir(), key=lambda it: it.stat().st_mtime)
        for one in old[: max(0, len(old) - KEPT_MAX)]:
            one.unlink(missing_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(asdict(found)), encoding="utf-8")
        fresh.replace(kept)


def _facts_from(kept: Mapping[str, Any]) -> Facts:
    return Facts(
        str(kept["tree"]), tuple(kept["lfs"]), int(kept["lfs_count"]), tuple(kept["submodules"])
    )


async def facts_of(source: GitSource, commit: str) -> Facts:
    """The same, asked of the remote; files are not fetched where it can leave them out. Raises
    Refused and Unavailable.
    """
    with TemporaryDirectory(prefix="fleetctl-") as place:
        tree = Path(place)

        async def ask(*words: str) -> str:
            return await git.run([*words], source, cwd=tree)

        await ask("init", "--quiet", "--template=", ".")
        await ask("remote", "add", "origin", source.url)
        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--filter=blob:none", "origin")
        await ask(*fetch, commit)
        held = await git.check_directory(source, commit, tree)
        await ask("read-tree", "FETCH_HEAD")
        within = source.path or "."
        staged = await ask("--literal-pathspecs", "ls-files", "--stage", "-z", "--", within)
        rows = [row.partition("\t") for row in staged.split("\0") if row]
        submodules = tuple(name for row, _, name in rows if row.startswith(_SUBMODULE))
        lfs = await _kept_by_lfs(source, tree, {name for _, _, name in rows})
    return Facts(held, tuple(lfs[:NAMES_MAX]), len(lfs), submodules)


async def _kept_by_lfs(source: GitSource, tree: Path, within: set[str]) -> list[str]:
    """Of the index in `tree`: attributes are read from it, as there is no file."""
    listed = await git.run(["ls-files", "-z", "--", ":(attr:filter=lfs)"], source, cwd=tree)
    return [name for name in listed.split("\0") if name in within]
