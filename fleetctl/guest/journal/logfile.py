"""A run's output on disk: capped, its first part and its newest parts kept.

Written by whoever keeps the run. Segment 0 is `<run>.log`, a later one `<run>.<offset of its first
byte>.log`, so that an offset means the same byte for ever, whatever was dropped in between. When
output came is in `<run>.times`.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

SEGMENTS = 4  # the first one and the newest three


MARK_S = 1.0  # a line is dated as exactly as this,
MARKS_PER_AGE = 500  # or to this part of how long the run has been there: days make a small file


class Marks:
    """When output came: a line `offset seconds` now and then. What a run says within its first
    second is dated by its start, so most runs need no such file.
    """

    def __init__(self, path: str, directory: Optional[int] = None, *, began: bool = True) -> None:
        """began: False where earlier output was dated by another one of these."""
        self._path = path
        self._directory = directory
        self._first = time.time()
        self._last = self._first if began else 0.0

    def note(self, offset: int) -> None:
        """The byte at `offset` comes now. Raises OSError."""
        now = time.time()
        if abs(now - self._last) < max(MARK_S, (now - self._first) / MARKS_PER_AGE):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._path, flags, 0o600, dir_fd=self._directory)
        try:
            os.write(handle, b"%d %.3f\n" % (offset, now))
        finally:
            os.close(handle)
        self._last = now


class LogFile:
    """Opened at the first byte: most runs say nothing."""

    def __init__(self, directory: int, run: str, bytes_max: int) -> None:
        self._directory = directory
        self._run = run
        self._segment_bytes = max(1024, bytes_max // SEGMENTS)
        self._handle: Optional[int] = None
        self._room = 0
        self._written = 0
        self._later: list[int] = []
        self._broken = False
        self._marks = Marks(f"{run}.times", directory)

    def write(self, data: bytes) -> None:
        """Append. A disk that refuses costs output, never the run."""
        view = memoryview(data)
        if view and not self._broken:
            self._date()
        while view and not self._broken:
            try:
                if self._room == 0:
                    self._next_segment()
                done = os.write(self._handle or 0, view[: self._room])
            except OSError:
                self._broken = True
                return
            view = view[done:]
            self._room -= done
            self._written += done

    def _date(self) -> None:
        try:
            self._marks.note(self._written)
        except OSError:
            self._broken = True

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _next_segment(self) -> None:
        self.close()
        name = f"{self._run}.log"
        if self._written:
            name = f"{self._run}.{self._written}.log"
            self._later.append(self._written)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(name, flags, 0o600, dir_fd=self._directory)
        self._room = self._segment_bytes
        while len(self._later) > SEGMENTS - 1:
            os.unlink(f"{self._run}.{self._later.pop(0)}.log", dir_fd=self._directory)
