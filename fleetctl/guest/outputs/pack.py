"""The file in which an attempt's outputs are kept: contents one behind another, an index of paths,
and the length of the index with a mark. Without the mark it is not whole.

Equal contents are there once. On the machine of the state directory a large content is a file of
its own in `blobs`, named by its SHA-256, which all attempts of an object share. Written by guests
and by the mirror of a remote run; read by providers/rundir/kept_outputs.py.
"""

from __future__ import annotations

import os
from contextlib import suppress

from fleetctl.guest.journal.digest import sha256
from fleetctl.guest.task.text import encode_compact, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

BLOBS = "blobs"
SMALL_BYTES_MAX = 64 * 1024  # of a content in the pack itself; a larger one is worth a file
PIECE_BYTES = 1024 * 1024
INDEX_BYTES_MAX = 64 * 1024 * 1024
MARK = b"FLTOUT01"
TAIL_BYTES = 16 + len(MARK)
_WRITE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def pack_name(run: str) -> str:
    return f"{run}.outputs"


class PackWriter:
    """Writes a pack beside a journal. `finish` or `discard` must follow."""

    def __init__(
        self,
        directory: int,
        run: str,
        *,
        blobs: bool,
    ) -> None:
        """directory: the open directory of journals; blobs: a large content becomes a file there.

        Raises OSError, as all methods do.
        """
        self._directory = directory
        self._blobs = blobs
        self._name = pack_name(run)
        self._handle = os.open(f"{self._name}.new", _WRITE, 0o600, dir_fd=directory)
        self._at = 0
        self._seen: dict[str, int] = {}
        self._files: list[Any] = []
        self.bytes = 0

    @property
    def files(self) -> int:
        return len(self._files)

    def add(
        self,
        path: str,
        mode: int,
        modified_at_s: float,
        read: Callable[[int], bytes],
    ) -> None:
        """Adds a file. read: returns the next bytes of its content, at most as many as asked."""
        first = _read_whole(read, SMALL_BYTES_MAX + 1)
        if len(first) <= SMALL_BYTES_MAX:
            size = len(first)
            sha = sha256(first).hexdigest()
            if sha not in self._seen:
                self._seen[sha] = self._append(first)
        else:
            size, sha = self._add_large(first, read)
        self.bytes += size
        self._files.append([path, mode, modified_at_s, size, sha, self._seen[sha]])

    def finish(self, said: dict[str, Any]) -> None:
        """Makes the pack whole and gives it its name. said: further facts, for its readers."""
        index = encode_compact({**said, "bytes": self.bytes, "files": self._files}).encode()
        self._append(index + b"%016x" % len(index) + MARK)
        os.close(self._handle)
        os.rename(
            f"{self._name}.new",
            self._name,
            src_dir_fd=self._directory,
            dst_dir_fd=self._directory,
        )

    def discard(self) -> None:
        os.close(self._handle)
        with suppress(OSError):
            os.unlink(f"{self._name}.new", dir_fd=self._directory)

    def _append(self, data: bytes) -> int:
        at = self._at
        _write_all(self._handle, data)
        self._at += len(data)
        return at

    def _add_large(self, first: bytes, read: Callable[[int], bytes]) -> tuple[int, str]:
        """Returns (bytes, SHA-256) of a content that is longer than its beginning `first`."""
        target = self._open_large()
        begun_at = self._at
        try:
            size, sha = _copy_content(first, read, target)
            if self._blobs:
                self._name_blob(sha)
        finally:
            if self._blobs:
                os.close(target)
        if not self._blobs and sha in self._seen:
            os.ftruncate(self._handle, begun_at)
            os.lseek(self._handle, begun_at, os.SEEK_SET)
        elif not self._blobs:
            self._at += size
        self._seen.setdefault(sha, -1 if self._blobs else begun_at)
        return size, sha

    def _open_large(self) -> int:
        if not self._blobs:
            return self._handle
        with suppress(FileExistsError):
            os.mkdir(BLOBS, 0o700, dir_fd=self._directory)
        return os.open(self._new_blob(), _WRITE, 0o600, dir_fd=self._directory)

    def _new_blob(self) -> str:
        return f"{BLOBS}/.{self._name}.new"

    def _name_blob(self, sha: str) -> None:
        os.rename(
            self._new_blob(),
            f"{BLOBS}/{sha}",
            src_dir_fd=self._directory,
            dst_dir_fd=self._directory,
        )


def read_index(path: str, *, dir_fd: Optional[int] = None) -> dict[str, Any]:
    """Returns the index of a whole pack: `files`, a list of [path, mode, time of its change, bytes,
    SHA-256, offset of its content or -1 for a blob], and what `finish` was given. Raises ValueError
    for a file that is no whole pack, and OSError.
    """
    handle = os.open(path, _READ, dir_fd=dir_fd)
    try:
        return _index_of(handle)
    finally:
        os.close(handle)


def reader_of(handle: int, size: int) -> Callable[[int], bytes]:
    """Returns a function as `PackWriter.add` takes it: reads an open file, at most `size` bytes in
    all, as a process may still write to it.
    """
    left = [size]

    def read(wanted: int) -> bytes:
        data = os.read(handle, min(wanted, left[0]))
        left[0] -= len(data)
        return data

    return read


def _index_of(handle: int) -> dict[str, Any]:
    size = os.fstat(handle).st_size
    tail = os.pread(handle, TAIL_BYTES, max(0, size - TAIL_BYTES))
    if len(tail) < TAIL_BYTES or not tail.endswith(MARK):
        raise ValueError("it is not whole")
    length = int(tail[:16], 16)
    begin = size - TAIL_BYTES - length
    if length > INDEX_BYTES_MAX or begin < 0:
        raise ValueError("its index is not whole")
    index = parse_json(os.pread(handle, length, begin).decode())
    if not isinstance(index, dict) or not isinstance(index.get("files"), list):
        raise ValueError("its index is none")
    return index


def _copy_content(
    first: bytes,
    read: Callable[[int], bytes],
    target: int,
) -> tuple[int, str]:
    from hashlib import sha256 as quick_sha256  # many times as quick, for data that pays for it

    digest = quick_sha256()
    data = first
    size = 0
    while data:
        digest.update(data)
        _write_all(target, data)
        size += len(data)
        data = read(PIECE_BYTES)
    return size, digest.hexdigest()


def _read_whole(read: Callable[[int], bytes], limit: int) -> bytes:
    data = piece = read(limit)
    while piece and len(data) < limit:
        piece = read(limit - len(data))
        data += piece
    return data


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
