"""What a directory holds, as one short text: equal for equal trees, whenever and wherever they are
looked at. Called when an object is applied or planned, and where a copy of its source was taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from fleetctl.providers.sources.excludes import Excludes
from fleetctl.providers.sources.stats import Stats
from fleetctl.providers.sources.tree import Rules, stays_inside, walk

# An apply waits for it, so it must be over in about a second; what is larger is not compared.
FILES_MAX = 20_000
BYTES_MAX = 256 << 20

_ALL = Rules(Excludes(()))


@dataclass(frozen=True, slots=True)
class Tree:
    """revision: empty when it is too large to compare, or cannot be read. files: relative path ->
    digest of what it is; links too.
    """

    revision: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def of_project(origin: Path, exclude: tuple[str, ...], stats: Stats | None = None) -> Tree:
    """What a copy taken now would hold. stats: digests of files that were read before."""
    return _tree(origin, Rules.of_project(exclude), stats or Stats())


def of_copy(copy: Path) -> Tree:
    """What a copy holds that was taken; as `of_project`."""
    return _tree(copy, _ALL, Stats())


def _tree(origin: Path, rules: Rules, stats: Stats) -> Tree:
    files: dict[str, str] = {}
    directories: set[str] = set()
    size = 0
    try:
        if not origin.is_dir():
            return Tree()
        for count, (entry, relative) in enumerate(walk(origin, rules)):
            if entry.is_symlink():
                if not stays_inside(Path(entry.path), origin):
                    continue
                files[relative] = f"link {str(Path(entry.path).readlink())!r}"
            elif entry.is_dir():
                directories.add(relative)
            elif entry.is_file():
                found = entry.stat()
                size += found.st_size
                if count > FILES_MAX or size > BYTES_MAX:
                    return Tree()
                runs = "x" if found.st_mode & 0o100 else "-"
                files[relative] = f"file {runs} {stats.digest(entry, relative, found)}"
            else:
                continue
            # A file may come back in below a directory that stays out; a copy has the directory.
            above = os.path.dirname(relative)  # noqa: PTH120 - of every file
            while above and above not in directories:
                directories.add(above)
                above = os.path.dirname(above)  # noqa: PTH120
    except OSError:
        return Tree()  # it changes under our eyes, or is not ours to read
    lines = [f"{relative!r} {what}" for relative, what in files.items()]
    lines += [f"{relative!r} directory" for relative in directories]
    digest = sha256("\n".join(sorted(lines)).encode()).hexdigest()
    return Tree(f"sha256:{digest}", files)
