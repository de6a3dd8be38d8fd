"""The code that a task works on: fetched or copied once a supervisor, then copied for each sandbox.

Called before a supervisor starts. A directory's snapshot is taken once, so that all runs of a
template see the same.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.local.assets import git_checkout as gitsource
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.sources import git
from fleetctl.providers.sources.revision import of_copy
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree
from fleetctl.specs.blocks.template import Source


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
        tree, commit = await gitsource.check_out_commit(layout, source.git)
        await asyncio.to_thread(copy_tree, tree, snapshot, CopyRules.of_checkout(source.exclude))
        return git.directory_name(source.git.url), commit
    origin = Path(source.path or "")
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    await asyncio.to_thread(copy_tree, origin, snapshot, CopyRules.of_project(source.exclude))
    return origin.resolve().name or "source", ""
