"""Reads a run's output from disk, while it runs and after, with or without a controller.

Used by providers and, directly, by the CLI. Imports next to nothing and never writes. Bytes come
as the task wrote them: who prints them on a terminal escapes them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from fleetctl.providers.paths import checked

_TIME = re.compile(rb"[0-9]{1,11}\.[0-9]{3}")
CHUNK_BYTES_MAX = 256 * 1024
POLL_S = 0.1  # how soon new output is seen when following
LAST_WORDS_LINES = 5
LAST_WORDS_BYTES = 1024
SMALL_LOG_BYTES = 256 * 1024  # far below the size at which a log is rotated
PAST = ".past"  # ends the name of the empty file that says: its log is past retention


def past_path(runs: Path, run: str) -> Path:
    """What stands in place of the log of a run, and of its other nodes and services, once
    retention took it.
    """
    return runs / f"{checked(run)}{PAST}"


def past_s(runs: Path, run: str) -> float | None:
    """When retention took the log of a run, in seconds since the epoch; None where it did not."""
    path = past_path(runs, run)
    try:
        return path.stat().st_mtime if not (runs / f"{run}.log").exists() else None
    except OSError:
        return None


class LogReader:
    """One run's log: `<run>.log` and, after a rotation, `<run>.<offset>.log` for each later
    part.
    """

    def __init__(self, runs: Path, run: str) -> None:
        """runs: the directory of journals and logs of the run's resource."""
        self._directory = runs
        self._run = checked(run)

    def read(self, offset: int) -> tuple[bytes, int]:
        """Up to CHUNK_BYTES_MAX from `offset`, and where to go on. What was dropped is told in its
        place.
        """
        starts = self._segments()
        at = max((start for start in starts if start <= offset), default=None)
        if at is None:
            return b"", offset
        data = _read(self._path(at), offset - at)
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
        self, offset: int, ended: Callable[[], Awaitable[bool]], *, follow: bool
    ) -> AsyncIterator[tuple[bytes, int, bool]]:
        """(bytes, where to go on, whether that is all there will ever be), from `offset` on; with
        `follow` until the run has ended.
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
        """(offset, when the byte there came), ascending; of what came before the first, and of runs
        that said all at once, nothing is told.
        """
        data = _read(self._directory / f"{self._run}.times", 0)
        found = []
        for line in data.splitlines():
            offset, _, at_s = line.partition(b" ")
            # The newest one may be half written.
            if offset.isdigit() and _TIME.fullmatch(at_s):
                found.append((int(offset), float(at_s)))
        return found

    def exists(self) -> bool:
        """Whether anything was opened for it."""
        return self._path(0).exists()

    def size(self) -> int:
        """Where the log ends now."""
        last = max(self._segments(), default=None)
        return 0 if last is None else last + _size(self._path(last))

    def last_words(self) -> str:
        """The last few lines, for a message; "" when there is no output."""
        first = _size(self._path(0))
        # Looking for later parts lists the directory of all runs, so a small log is not asked.
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
        if _size(self._path(0)) == 0:
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


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _read(path: Path, offset: int) -> bytes:
    """A piece of the file; nothing when it is gone, or not a regular file of its own."""
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
