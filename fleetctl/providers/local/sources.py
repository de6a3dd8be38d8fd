"""The code that a task works on: fetched or copied once a keeper, then copied for each sandbox.

Called before a keeper starts. A directory's snapshot is taken once, so that all runs of a template
see the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import Refused
from fleetctl.providers.local import gitsource
from fleetctl.providers.local.excludes import Excludes
from fleetctl.providers.local.keeper.cleaning import remove_tree
from fleetctl.providers.local.paths import Layout
from specs.template import Source

FILES_MAX = 200_000
BYTES_MAX = 20 * 1024**3  # beyond this a volume is the right place


@dataclass(frozen=True, slots=True)
class Fetched:
    directory: Path
    name: str  # of the directory in the sandbox


async def fetch(layout: Layout, source: Source | None, keeper: Path) -> Fetched | None:
    """The source on disk. Raises Refused or Unavailable."""
    if source is None:
        return None
    snapshot, mark = keeper / "source", keeper / "source.json"
    if not mark.exists():
        name = await _take(layout, source, snapshot)
        # Written last: a crash before this takes the snapshot again.
        mark.write_text(json.dumps({"name": name}), encoding="utf-8")
    return Fetched(snapshot, json.loads(mark.read_text(encoding="utf-8"))["name"])


async def _take(layout: Layout, source: Source, snapshot: Path) -> str:
    """Fill `snapshot`; the name that the directory should have."""
    await asyncio.to_thread(remove_tree, str(snapshot))
    if source.git is not None:
        tree = await gitsource.checkout(layout, source.git)
        await asyncio.to_thread(_copy, tree, snapshot, Excludes(source.exclude))
        return gitsource.directory_name(source.git.url)
    origin = Path(source.path or "")
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    await asyncio.to_thread(_copy, origin, snapshot, Excludes.with_defaults(source.exclude))
    return origin.resolve().name or "source"


def _copy(origin: Path, target: Path, excludes: Excludes) -> None:
    """Regular files, directories, and symlinks that stay inside; everything else is left out."""
    target.mkdir(mode=0o700)
    size = 0
    for count, (path, relative) in enumerate(_walk(origin, excludes)):
        if path.is_symlink():
            if _stays_inside(path, origin):
                (target / relative).symlink_to(path.readlink())
        elif path.is_dir():
            (target / relative).mkdir(mode=0o700)
        elif path.is_file():
            size += path.stat().st_size
            if count > FILES_MAX or size > BYTES_MAX:
                limit = f"{FILES_MAX} files or {BYTES_MAX >> 30} GiB"
                raise Refused(
                    f"the source `{origin}` has more than {limit}",
                    hint="exclude what the task does not need, or keep data on a volume",
                )
            shutil.copy2(path, target / relative, follow_symlinks=False)


def _walk(origin: Path, excludes: Excludes) -> Iterator[tuple[Path, str]]:
    """(path, path relative to origin) from the top down, without what is excluded."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(origin / below) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                relative = os.path.join(below, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if excludes.match(relative, is_directory=is_directory):
                    continue
                yield Path(entry.path), relative
                if is_directory:
                    waiting.append(relative)


def _stays_inside(link: Path, origin: Path) -> bool:
    if link.readlink().is_absolute():
        return False
    top = os.path.realpath(origin)
    return os.path.realpath(link).startswith(top + os.sep)
