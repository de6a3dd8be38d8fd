"""Reads a run's output from disk, while it runs and after, with or without a controller.

Used by providers and, directly, by the CLI. Imports very little and never writes. Bytes come as the
task wrote them: a caller that prints them on a terminal escapes them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from fleetctl.providers.paths import checked_name

_TIME = re.compile(rb"[0-9]{1,11}\.[0-9]{3}")
CHUNK_BYTES_MAX = 256 * 1024
POLL_S = 0.1  # how soon new output is seen when following
LAST_WORDS_LINES = 5
LAST_WORDS_BYTES = 1024
SMALL_LOG_BYTES = 256 * 1024  # far below the size at which a log is rotated
PAST = ".past"  # ends the name of the empty file that marks a log past retention


def past_path(runs: Path, run: str) -> Path:
    """Returns the file that replaces the log of a run, and of its other nodes and services, once
    retention took it.
    """
    return runs / f"{checked_name(run)}{PAST}"


def past_s(runs: Path, run: str) -> float | None:
    """Returns when retention took the log of a run, in seconds since the epoch, or None."""
    path = past_path(runs, run)
    try:
        return path.stat().st_mtime if not (runs / f"{run}.log").exists() else None
    except OSError:
        return None


class RunLogReader:
    """One run's log: `<run>.log` and, after a rotation, `<run>.<offset>.log` for each later
    part.
    """

    def __init__(self, runs: Path, run: str) -> None:
        """runs: the directory of journals and logs of the run's resource."""
        self._directory = runs
        self._run = checked_name(run)

    def read(self, offset: int) -> tuple[bytes, int]:
        """Returns up to CHUNK_BYTES_MAX from `offset`, and where to go on. A line replaces dropped
        output.
        """
        starts = self._segments()
        at = max((start for start in starts if start <= offset), default=None)
        if at is None:
            return b"", offset
        data = _read_piece(self._path(at), offset - at)
        if data:
            return data, offset + len(data)
        following = min((start for start in starts if start > at), default=None)
        if following is None:
            return b"", offset
        if following <= offset:
            return self.read(following)
        dropped = following - offset
        # Only a part that is gone makes a hole; the newest part may still be about to grow to the
        # next.
        return f"\n[fleetctl: {dropped} bytes of output were dropped here]\n".encode(), following

    async def tail(
        self,
        offset: int,
        ended: Callable[[], Awaitable[bool]],
        *,
        follow: bool,
    ) -> AsyncIterator[tuple[bytes, int, bool]]:
        """Returns (bytes, where to go on, whether that is all there will ever be), from `offset`
        on; with `follow` until the run has ended.
        """
        import asyncio  # not on the way of who only reads

        while True:
            # Asked before the read, so that what came in before the end is still read.
            over = await ended()
            data, offset = self.read(offset)
            if data:
                yield data, offset, False
            elif over or not follow:
                yield b"", offset, over
                return
            else:
                await asyncio.sleep(POLL_S)

    def times(self) -> list[tuple[int, float]]:
        """Returns (offset, when the byte there came), ascending; bytes before the first, and runs
        that sent all output at once, have no time.
        """
        data = _read_piece(self._directory / f"{self._run}.times", 0)
        found = []
        for line in data.splitlines():
            offset, _, at_s = line.partition(b" ")
            # The newest one may be half written.
            if offset.isdigit() and _TIME.fullmatch(at_s):
                found.append((int(offset), float(at_s)))
        return found

    def exists(self) -> bool:
        """Returns whether anything was opened for it."""
        return self._path(0).exists()

    def size(self) -> int:
        """Returns where the log ends now."""
        last = max(self._segments(), default=None)
        if last is None:
            return 0
        return last + _file_size(self._path(last))

    def last_words(self) -> str:
        """The last few lines, for a message; "" when there is no output."""
        first = _file_size(self._path(0))
        # Looking for later parts lists the directory of all runs, so a small log is skipped.
        end = first if first < SMALL_LOG_BYTES else self.size()
        data, _ = self.read(max(0, end - LAST_WORDS_BYTES))
        lines = data.decode("utf-8", "replace").rstrip().splitlines()
        return "\n".join(lines[-LAST_WORDS_LINES:])

    def _path(self, start: int) -> Path:
        return self._directory / (f"{self._run}.{start}.log" if start else f"{self._run}.log")

    def _segments(self) -> list[int]:
        """Offsets at which the parts on disk begin."""
        if not self._path(0).exists():
            return []
        if _file_size(self._path(0)) == 0:
            return [0]
        return [0, *self._later()]

    def _later(self) -> list[int]:
        prefix = f"{self._run}."
        return sorted(
            int(middle)
            for name in os.listdir(self._directory)
            if name.startswith(prefix)
            and name.endswith(".log")
            and (middle := name[len(prefix) : -4]).isdigit()
        )


def _file_size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _read_piece(path: Path, offset: int) -> bytes:
    """Returns a piece of the file; b"" when it is gone, or not a regular file of its own."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        return os.pread(handle, CHUNK_BYTES_MAX, offset)
    finally:
        os.close(handle)
