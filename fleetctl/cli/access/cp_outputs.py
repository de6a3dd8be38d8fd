"""Copies the outputs that are kept of a task, by the rules of a copy out of a running one."""

from __future__ import annotations

import io
import posixpath
import tarfile
import tempfile
from collections.abc import Iterator
from typing import IO

from fleetctl.cli.access.tar import CopySummary, means_contents, unpack_archive
from fleetctl.providers.rundir.kept_outputs import KeptFile, KeptOutputs
from fleetctl.views.run_outputs import is_below


def select_outputs(kept: KeptOutputs, path: str) -> list[KeptFile]:
    """Returns the file at `path`, or the files below it; all for `.`."""
    return [it for it in kept.files if is_below(it, path)]


def copy_outputs(
    kept: KeptOutputs,
    path: str,
    target: str,
) -> CopySummary:
    """Copies the outputs at `path`, of which there must be some. Raises NotFound and UsageError."""
    contents = means_contents(path)
    with tempfile.TemporaryFile() as file:
        _pack_outputs(kept, posixpath.normpath(path.removesuffix("/.")), file, contents=contents)
        file.seek(0)
        return unpack_archive(file, target, contents=contents)


def _pack_outputs(
    kept: KeptOutputs,
    wanted: str,
    file: IO[bytes],
    *,
    contents: bool,
) -> None:
    """Writes them as an archive whose top has the last name of `wanted`."""
    top = "." if contents else posixpath.basename(wanted)
    found = select_outputs(kept, wanted)
    with tarfile.open(
        fileobj=file,
        mode="w",
        format=tarfile.GNU_FORMAT,
    ) as archive:
        if contents or found[0].path != wanted:
            entry = tarfile.TarInfo(top)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o755
            archive.addfile(entry)
        for one in found:
            below = one.path if wanted == "." else one.path[len(wanted) :].lstrip("/")
            entry = tarfile.TarInfo(f"{top}/{below}" if below else top)
            entry.mode, entry.mtime, entry.size = one.mode, int(one.modified_at_s), one.size
            archive.addfile(entry, io.BufferedReader(PieceReader(kept.contents(one))))


class PieceReader(io.RawIOBase):
    """Reads pieces of a content as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._rest = self._rest or next(self._pieces, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
