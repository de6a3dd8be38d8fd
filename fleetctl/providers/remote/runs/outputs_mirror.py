"""What is kept of a remote run's files, on this machine's disk. Called by run_mirror.py alone.

Pieces arrive behind the run's output, before its end. They become the run's pack once all are here:
large contents go to the blobs that the attempts of an object share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetctl.guest.outputs.pack import PackWriter, pack_name
from fleetctl.providers.rundir.kept_outputs import KeptOutputs, read_pack, sync_pack

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputsMirror:
    """at: how much is here, and so where a stream is to go on."""

    def __init__(
        self,
        runs: Path,
        run: str,
        *,
        fresh: bool,
    ) -> None:
        """fresh: nothing of the run can be here yet."""
        self._runs = runs
        self._run = run
        self._part = runs / f"{pack_name(run)}.part"
        self.at = 0 if fresh else _size_of(self._part)

    def write(self, at: int, data: bytes) -> None:
        """Keeps `data`, whose first byte has offset `at`. Raises OSError when the disk refuses, and
        then can be called again.
        """
        view = memoryview(data)[max(0, self.at - at) :]
        if not view or at > self.at:
            return
        handle = os.open(self._part, _WRITE, 0o600)
        try:
            while view:
                done = os.pwrite(handle, view, self.at)
                view = view[done:]
                self.at = self.at + done
        finally:
            os.close(handle)

    def settle(self) -> None:
        """Makes the pieces the pack of the run once they are whole, and durable. Blocks. Raises
        OSError when the disk refuses, and then can be called again.
        """
        arrived = read_pack(self._part) if self.at else None
        if arrived is None:
            return
        directory = os.open(self._runs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._write_pack(arrived, directory)
        finally:
            os.close(directory)
        sync_pack(self._runs, self._run)
        self._part.unlink(missing_ok=True)
        self.at = 0

    def _write_pack(self, arrived: KeptOutputs, directory: int) -> None:
        writer = PackWriter(directory, self._run, blobs=True)
        try:
            for file in arrived.files:
                reader = _reader_of(arrived.contents(file))
                writer.add(file.path, file.mode, file.modified_at_s, reader)
            writer.finish({})
        except BaseException:
            writer.discard()
            raise


def _reader_of(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    rest = [b""]

    def read(size: int) -> bytes:
        data = rest[0] or next(pieces, b"")
        rest[0] = data[size:]
        return data[:size]

    return read


def _size_of(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
