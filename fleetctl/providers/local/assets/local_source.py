"""The code that a task works on: fetched at a commit or copied once a supervisor, then copied for
each sandbox.

Fetched before a supervisor starts. A directory's snapshot is taken once, so that all runs of a
template see the same. Checkouts are cached by (url, commit) below $FLEETCTL_HOME and never changed.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.local.assets import local_caches
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import git
from fleetctl.providers.sources.revision import of_copy
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree
from fleetctl.specs.blocks.template import GitSource, Source


@dataclass(frozen=True, slots=True)
class FetchedSource:
    directory: Path
    name: str  # of the directory in the sandbox


async def fetch_source(
    layout: LocalLayout,
    source: Source | None,
    supervisor: Path,
) -> FetchedSource | None:
    """The source on disk. Raises Refused or Unavailable."""
    if source is None:
        return None
    snapshot = supervisor / "source"
    mark = supervisor / "source.json"
    if not mark.exists():
        name, commit = await _fill_snapshot(layout, source, snapshot)
        revision = commit or (await asyncio.to_thread(of_copy, snapshot)).revision
        # Written last: a crash before this takes the snapshot again.
        mark.write_text(json.dumps({"name": name, "revision": revision}), encoding="utf-8")
    return FetchedSource(snapshot, json.loads(mark.read_text(encoding="utf-8"))["name"])


def snapshot_revision(supervisor: Path) -> str:
    """Returns the revision of a supervisor's snapshot; "" while it has no snapshot, or an unknown
    one.
    """
    try:
        document = json.loads((supervisor / "source.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(document.get("revision", ""))


async def _fill_snapshot(
    layout: LocalLayout,
    source: Source,
    snapshot: Path,
) -> tuple[str, str]:
    """Fills `snapshot`; returns the name that the directory should have, and its commit."""
    await asyncio.to_thread(remove_tree, str(snapshot))
    if source.git is not None:
        tree, commit = await check_out_commit(layout, source.git)
        await asyncio.to_thread(copy_tree, tree, snapshot, CopyRules.of_checkout(source.exclude))
        return git.directory_name(source.git.url), commit
    origin = Path(source.path or "")
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    await asyncio.to_thread(copy_tree, origin, snapshot, CopyRules.of_project(source.exclude))
    return origin.resolve().name or "source", ""


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
    if local_caches.mark_used(tree, tree):
        return tree / (source.path or ""), commit
    building = cache / f".{key}.{os.getpid()}"
    await asyncio.to_thread(remove_tree, str(building))
    building.mkdir(mode=0o700)
    await git.fetch_commit(source, commit, building)
    await asyncio.to_thread(remove_tree, str(building / ".git"))
    if not tree.exists():
        building.rename(tree)
    os.utime(local_caches.lock_of(tree))
    return tree / (source.path or ""), commit


async def clone_commit(source: GitSource, tree: Path) -> None:
    """Fills the empty directory `tree` with a repository at the wanted commit. Raises Refused or
    Unavailable.
    """
    git.check_source(source)
    await git.fetch_commit(source, await git.resolve_commit(source), tree)
    await git.run(["remote", "add", "origin", git.redact_url(source.url)], source, cwd=tree)
