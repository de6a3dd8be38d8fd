"""Reads the outputs that an attempt's pack keeps, from this machine's disk; see
guest/outputs/pack.py.

Every provider keeps them under the same path: beside the journal.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import FleetctlError
from fleetctl.guest.outputs.pack import BLOBS, PIECE_BYTES, pack_name, read_index
from fleetctl.providers.paths import checked_name
from fleetctl.providers.rundir.shared_contents import share_contents

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


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
