"""The checkout of a Source: one directory, brought to a commit. Called by keeper.py alone, for one
commit at a time; it is read only after git has said that all of it is there.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import git
from fleetctl.specs.kinds.source import Repository


async def tip(repository: Repository) -> str:
    """The commit that the ref names now. Raises Refused and Unavailable."""
    git.check(repository)
    return await git.resolve(repository)


async def check_out(repository: Repository, commit: str, place: Path) -> Path:
    """The directory that holds the files of that commit, and no others. Raises Refused and
    Unavailable. place: a directory of the Source's own, made here.
    """
    git.check(repository)
    tree = make_private(place) / git.directory_name(repository.url)
    if not (tree / ".git").is_dir():
        await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
        tree.mkdir(mode=0o700)
        await git.run(["init", "--quiet", "--template=", "."], repository, cwd=tree)
    try:
        await _bring(repository, commit, tree)
    except (Refused, Unavailable):
        # What is half there must not be in the way of the next try.
        await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
        raise
    return tree


async def _bring(repository: Repository, commit: str, tree: Path) -> None:
    fetch = ["fetch", "--quiet", "--force", f"--depth={repository.depth}", "--no-tags", "--"]
    await git.run([*fetch, repository.url, commit], repository, cwd=tree)
    await git.run(["checkout", "--quiet", "--force", "--detach", commit], repository, cwd=tree)
    await git.run(["clean", "-ffdxq"], repository, cwd=tree)
    if repository.submodules:
        update = ["submodule", "update", "--quiet", "--init", "--recursive", "--force", "--depth=1"]
        await git.run(update, repository, cwd=tree)
