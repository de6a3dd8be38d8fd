"""Reads the outputs that an attempt's pack keeps on this machine's disk, shares large contents
between the objects of a provider, and measures directories.

Every provider keeps packs under the same path: beside the journal. A large content is a file of its
object, and has a second name, its SHA-256, in a directory beside the objects' own. The file system
counts the names: an object that goes takes its own along, and a file whose last name is the one in
that directory belongs to no object any more. So no count can be wrong, also after a crash; a disk
without second names has copies.
"""

from __future__ import annotations

import os
import posixpath
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import FleetctlError
from fleetctl.guest.outputs.pack import BLOBS, PIECE_BYTES, pack_name, read_index
from fleetctl.providers.paths import RUNS, checked_name, make_private

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

SHARED = "contents"
_NEW = ".new."
_PREFIX = 2  # characters of a digest that name a directory: 256 of them
BLOCK_BYTES = 512  # of st_blocks, whatever the file system


class KeptFile(NamedTuple):
    """path: below the directory in which the work began, with `/` between its parts; bytes that are
    no text are lone surrogates, as in file names. at: offset of its content; -1: it is a blob.
    """

    path: str
    mode: int
    modified_at_s: float
    size: int
    sha256: str
    at: int


class KeptOutputs:
    """The outputs of one attempt. files: by path."""

    def __init__(self, pack: Path, files: list[KeptFile]) -> None:
        self._pack = pack
        self.files = files

    @property
    def size(self) -> int:
        """Returns the bytes of all files, as they are copied."""
        return sum(it.size for it in self.files)

    def contents(self, file: KeptFile) -> Iterator[bytes]:
        """Yields the content in pieces. Raises FleetctlError where it is not there any more."""
        place = self._pack.parent / BLOBS / checked_name(file.sha256) if file.at < 0 else self._pack
        try:
            handle = os.open(place, _READ)
        except FileNotFoundError as error:
            raise FleetctlError(f"the content of `{file.path!a}` is gone from {place}") from error
        try:
            at = max(0, file.at)
            left = file.size
            while left:
                data = os.pread(handle, min(PIECE_BYTES, left), at)
                if not data:
                    raise FleetctlError(f"the content of `{file.path!a}` in {place} is not whole")
                at = at + len(data)
                left = left - len(data)
                yield data
        finally:
            os.close(handle)


def find_outputs(runs: Path, run: str) -> KeptOutputs | None:
    """Returns the outputs of a run; None where none are kept. runs: the directory of journals."""
    return read_pack(runs / pack_name(checked_name(run)))


def has_outputs(runs: Path, run: str) -> bool:
    """Returns whether a pack of the run is there."""
    return (runs / pack_name(checked_name(run))).exists()


def read_pack(pack: Path) -> KeptOutputs | None:
    """Returns what is kept in a pack; None for a file that is no whole one, or holds a path that
    leaves its directory.
    """
    try:
        files = [KeptFile(*it) for it in read_index(str(pack))["files"]]
    except (OSError, ValueError, TypeError):
        return None
    if any(not _is_inside(it.path) for it in files):
        return None
    return KeptOutputs(pack, sorted(files))


def blobs_named(pack: Path) -> set[str]:
    """Returns the names of the blobs that a pack needs. Raises OSError and ValueError."""
    return {str(it[4]) for it in read_index(str(pack))["files"] if it[5] < 0}


def sync_pack(runs: Path, run: str) -> None:
    """Makes the outputs of a run survive a loss of power, once this returns, and their contents one
    copy with equal ones of other objects; does no work for a run without any. Blocks. Raises
    OSError.
    """
    pack = runs / pack_name(checked_name(run))
    try:
        blobs = blobs_named(pack)
    except (FileNotFoundError, ValueError):
        return
    share_contents(runs, sorted(blobs))
    names = [runs / BLOBS / checked_name(it) for it in sorted(blobs)]
    for path in (*names, pack, *([runs / BLOBS] if names else []), runs):
        handle = os.open(path, _READ)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_inside(path: str) -> bool:
    clean = posixpath.normpath(path)
    return clean == path and not path.startswith(("/", "../")) and path not in ("", ".", "..")


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


def disk_usage(path: Path | str) -> int:
    """Returns the bytes on disk of a file, or of all files below a directory. Files that
    are deleted meanwhile, or cannot be read, are not counted.
    """
    return sum(it.st_blocks for it in _walk_stats(os.fspath(path))) * BLOCK_BYTES


def _walk_stats(path: str) -> Iterator[os.stat_result]:
    try:
        top = os.lstat(path)
    except OSError:
        return
    yield top
    waiting = [path] if stat.S_ISDIR(top.st_mode) else []
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                except OSError:
                    continue
