"""Copies of directories as archives: for providers that bring a source in one piece, and for what
uploads of single files leave out. Called in a thread.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from secrets import token_hex

from fleetctl.providers.sources.frozen_copy import freeze_source
from fleetctl.providers.sources.source_snapshots import name_of
from fleetctl.specs.blocks.template import Source

REST = "rest.tar"


def archive_of(source: Source, job: Path) -> Path:
    """The source, packed; made once a template, so that every sandbox gets the same. Raises
    Refused.
    """
    tree = freeze_source(source, job)
    archive = tree.with_name(f"{tree.name}.tar.gz")
    if not archive.exists():
        _pack_archive(archive, tree, ["."], mode="w:gz")
    return archive


def name_in_sandbox(path: str) -> str:
    """Returns a directory's name in the sandbox: as here, where that is UTF-8."""
    return os.fsencode(name_of(Path(path))).decode("utf-8", "replace")


def rest_of(tree: Path) -> tuple[Path, frozenset[str]]:
    """Returns (a directory, the entries of its archive REST, relative to the copy). REST holds
    links, directories without a file and names that are no UTF-8; it is made once, if there are
    any.
    """
    names = frozenset(_odd_in(tree))
    directory = tree.with_name(f"{tree.name}.rest")
    directory.mkdir(mode=0o700, exist_ok=True)
    if names and not (directory / REST).exists():
        _pack_archive(directory / REST, tree, sorted(names), mode="w")
    return directory, names


def _odd_in(tree: Path) -> Iterable[str]:
    for directory, names, files in os.walk(tree):
        for name in (*names, *files):
            path = Path(directory, name)
            is_plain = not path.is_symlink() and _is_utf8(name)
            if not is_plain or (name in names and not any(path.iterdir())):
                yield str(path.relative_to(tree))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pack_archive(
    archive: Path,
    tree: Path,
    names: Iterable[str],
    *,
    mode: str,
) -> None:
    """Packs the archive. Sandboxes of a template may begin at once, and each makes a whole
    archive.
    """
    making = archive.with_name(f".{archive.name}.{token_hex(4)}.new")
    # By this form names are bytes, which every tar takes as they are.
    options = {"compresslevel": 1} if mode == "w:gz" else {}
    with tarfile.open(making, mode, format=tarfile.GNU_FORMAT, **options) as tar:  # type: ignore[call-overload]
        for name in names:
            tar.add(tree / name, arcname=name, filter=_as_roots)
    making.replace(archive)


def _as_roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Makes root the owner: the file's owner here does not exist in a sandbox."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
