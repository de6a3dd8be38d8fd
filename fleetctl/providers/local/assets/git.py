"""Fetches one commit of a git repository to this machine.

Called by sources.py and by sessions. Checkouts are cached by (url, commit) below $FLEETCTL_HOME and
never changed.
"""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path

from fleetctl.providers.local.assets import shelf
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import git
from fleetctl.specs.blocks.template import GitSource


async def checkout(layout: Layout, source: GitSource) -> tuple[Path, str]:
    """(the tree of the wanted commit, or the directory of it that the source names, cached; that
    commit). Raises Refused or Unavailable.
    """
    git.check(source)
    cache = make_private(layout.repositories)
    commit = await git.resolve(source)
    facts = f"{source.url}\n{commit}\n{source.submodules}"
    if source.path is not None or source.lfs:
        facts += f"\n{source.path}\n{source.lfs}"
    key = sha256(facts.encode()).hexdigest()[:24]
    tree = cache / key
    if shelf.use(tree, tree):
        return tree / (source.path or ""), commit
    building = cache / f".{key}.{os.getpid()}"
    await asyncio.to_thread(remove_tree, str(building))
    building.mkdir(mode=0o700)
    await git.fetch(source, commit, building)
    await asyncio.to_thread(remove_tree, str(building / ".git"))
    if not tree.exists():
        building.rename(tree)
    os.utime(shelf.lock_of(tree))
    return tree / (source.path or ""), commit


async def clone(source: GitSource, tree: Path) -> None:
    """Fill the empty directory `tree` with a repository at the wanted commit. Raises Refused or
    Unavailable.
    """
    git.check(source)
    await git.fetch(source, await git.resolve(source), tree)
    await git.run(["remote", "add", "origin", git.shown(source.url)], source, cwd=tree)
