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
from fleetctl.providers.local.assets import git as gitsource
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.sources import git
from fleetctl.providers.sources.revision import of_copy
from fleetctl.providers.sources.tree import Rules, take
from fleetctl.specs.blocks.template import Source


@dataclass(frozen=True, slots=True)
class Fetched:
    directory: Path
    name: str  # of the directory in the sandbox


async def fetch(layout: Layout, source: Source | None, supervisor: Path) -> Fetched | None:
    """The source on disk. Raises Refused or Unavailable."""
    if source is None:
        return None
    snapshot, mark = supervisor / "source", supervisor / "source.json"
    if not mark.exists():
        name, commit = await _take(layout, source, snapshot)
        revision = commit or (await asyncio.to_thread(of_copy, snapshot)).revision
        # Written last: a crash before this takes the snapshot again.
        mark.write_text(json.dumps({"name": name, "revision": revision}), encoding="utf-8")
    return Fetched(snapshot, json.loads(mark.read_text(encoding="utf-8"))["name"])


def revision(supervisor: Path) -> str:
    """What the snapshot of a supervisor holds; empty while it has none, or of one that is not
    known.
    """
    try:
        document = json.loads((supervisor / "source.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(document.get("revision", ""))


async def _take(layout: Layout, source: Source, snapshot: Path) -> tuple[str, str]:
    """Fill `snapshot`; the name that the directory should have, and the commit that it is of."""
    await asyncio.to_thread(remove_tree, str(snapshot))
    if source.git is not None:
        tree, commit = await gitsource.checkout(layout, source.git)
        await asyncio.to_thread(take, tree, snapshot, Rules.of_checkout(source.exclude))
        return git.directory_name(source.git.url), commit
    origin = Path(source.path or "")
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    await asyncio.to_thread(take, origin, snapshot, Rules.of_project(source.exclude))
    return origin.resolve().name or "source", ""
