"""Fetches one commit of a git repository to this machine.

Called by local_source.py and by sessions. Checkouts are cached by (url, commit) below
$FLEETCTL_HOME and never changed.
"""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path

from fleetctl.providers.local.assets import cache_dir
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import git
from fleetctl.specs.blocks.template import GitSource


async def check_out_commit(layout: LocalLayout, source: GitSource) -> tuple[Path, str]:
    """Returns (the tree of the wanted commit, or its directory that the source names, cached; the
    commit). Raises Refused or Unavailable.
    """
    git.check_source(source)
    cache = make_private(layout.repositories)
    commit = await git.resolve_commit(source)
    facts = f"{source.url}\n{commit}\n{source.submodules}"
    if source.path is not None or source.lfs:
        facts += f"\n{source.path}\n{source.lfs}"
    key = sha256(facts.encode()).hexdigest()[:24]
    tree = cache / key
    if cache_dir.mark_used(tree, tree):
        return tree / (source.path or ""), commit
    building = cache / f".{key}.{os.getpid()}"
    await asyncio.to_thread(remove_tree, str(building))
    building.mkdir(mode=0o700)
    await git.fetch_commit(source, commit, building)
    await asyncio.to_thread(remove_tree, str(building / ".git"))
    if not tree.exists():
        building.rename(tree)
    os.utime(cache_dir.lock_of(tree))
    return tree / (source.path or ""), commit


async def clone_commit(source: GitSource, tree: Path) -> None:
    """Fills the empty directory `tree` with a repository at the wanted commit. Raises Refused or
    Unavailable.
    """
    git.check_source(source)
    await git.fetch_commit(source, await git.resolve_commit(source), tree)
    await git.run(["remote", "add", "origin", git.redact_url(source.url)], source, cwd=tree)
