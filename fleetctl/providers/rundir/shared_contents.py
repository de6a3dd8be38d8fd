"""Shares large contents of outputs between the objects of a provider: one copy on the disk while
any attempt keeps it.

A content is a file of its object, and has a second name, its SHA-256, in a directory beside the
objects' own. The file system counts the names: an object that goes takes its own along, and a file
whose last name is that of this directory is of no object any more. So no count can be wrong, also
after a crash; and a disk without second names has copies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from fleetctl.guest.outputs.pack import BLOBS
from fleetctl.providers.paths import RUNS, checked_name, make_private

SHARED = "contents"
_NEW = ".new."
_PREFIX = 2  # characters of a digest that name a directory: 256 of them


def share_contents(runs: Path, names: Collection[str]) -> None:
    """Makes contents of an object one file with equal ones of others. runs: the object's directory
    of journals; names: SHA-256 of contents there. Blocks; leaves a content that the disk cannot
    share as it is.
    """
    for name in names:
        with suppress(OSError):  # of a disk without second names, or with too many: it has a copy
            _share_content(runs, checked_name(name))


def release_contents(provider: Path, names: Collection[str]) -> None:
    """Deletes those of these contents that no object keeps. provider: its directory. Blocks."""
    for name in names:
        _delete_if_alone(_shared_path(provider, checked_name(name)))


def release_all(provider: Path) -> None:
    """Deletes all contents that no object keeps. provider: its directory. Blocks: it looks at each
    content.
    """
    for path in _list_shared(provider / SHARED):
        _delete_if_alone(path)


def contents_of(job: Path) -> set[str]:
    """Returns the names of the contents that an object has. job: its directory."""
    try:
        return {it for it in os.listdir(job / RUNS / BLOBS) if not it.startswith(".")}
    except OSError:
        return set()


def _share_content(runs: Path, name: str) -> None:
    own = runs / BLOBS / name
    shared = _shared_path(runs.parents[2], name)
    make_private(shared.parent)
    looks = own.stat(follow_symlinks=False)
    try:
        shared.hardlink_to(own)
        return
    except FileExistsError:
        known = shared.stat(follow_symlinks=False)
    if os.path.samestat(looks, known):
        return
    if known.st_size == looks.st_size:
        try:
            _replace_by_link(own, shared)
            return
        except OSError:
            pass  # it has as many names as its disk allows: the next ones are of another file
    _replace_by_link(shared, own)


def _replace_by_link(path: Path, origin: Path) -> None:
    """Makes a path another name of the file at `origin`, in one step."""
    new = path.with_name(f"{_NEW}{path.name}.{os.getpid()}.{threading.get_ident()}")
    new.unlink(missing_ok=True)
    try:
        new.hardlink_to(origin)
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)


def _shared_path(provider: Path, name: str) -> Path:
    return provider / SHARED / name[:_PREFIX] / name


def _list_shared(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        for part in directory.iterdir():
            yield from part.iterdir()


def _delete_if_alone(path: Path) -> None:
    # A link that is made in between keeps the file: only the name here goes.
    with suppress(FileNotFoundError):
        if path.stat(follow_symlinks=False).st_nlink == 1:
            path.unlink()
