"""A run's output on disk: capped, its first part and its newest parts kept.

Written by the run's supervisor. Segment 0 is `<run>.log`, a later one `<run>.<offset of its first
byte>.log`, so that an offset means the same byte for ever, whichever segments were dropped. The
times of the output are in `<run>.times`.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleetctl.guest.journal.masking import Masking

SEGMENTS = 4  # the first one and the newest three
RETRY_S = 1.0  # after a refusal of the disk,
ROOM_BYTES = 16 << 20  # and while this much is free: journals and the store have priority


MARK_S = 1.0  # a line is dated as exactly as this,
MARKS_PER_AGE = 500  # or to this part of how long the run has been there: days make a small file


class Marks:
    """Records when output came: a line `offset seconds` now and then. Output within a run's first
    second is dated by its start, so most runs need no such file.
    """

    def __init__(
        self,
        path: str,
        directory: Optional[int] = None,
        *,
        began: bool = True,
    ) -> None:
        """began: False where another instance dated the earlier output."""
        self._path = path
        self._directory = directory
        self._first = time.time()
        self._last = self._first if began else 0.0
        self.written = 0  # lines of this one

    def note(self, offset: int) -> None:
        """Records that the byte at `offset` comes now. Raises OSError."""
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
        self.written += 1


class LogFile:
    """A log that is opened at its first byte: most runs have no output."""

    def __init__(
        self,
        directory: int,
        run: str,
        bytes_max: int,
        masking: Optional[Masking] = None,
    ) -> None:
        """masking: removes values of secrets before any write."""
        self._masked = masking.stream() if masking is not None else None
        self._directory = directory
        self._run = run
        self._segment_bytes = max(1024, bytes_max // SEGMENTS)
        self._handle: Optional[int] = None
        self._room = 0
        self._written = 0
        self._later: list[int] = []
        self._refused_at_s: Optional[float] = None  # since when the disk refuses
        self._marks = Marks(f"{run}.times", directory)

    def write(self, data: bytes) -> None:
        """Appends data. A failed write loses output and never fails the run: lost bytes leave a
        hole before the next segment, which readers report.
        """
        self._append(data if self._masked is None else self._masked.feed(data))

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        if view and self._may_try():
            try:
                self._marks.note(self._written)
                while view:
                    if self._room == 0:
                        self._next_segment()
                    done = os.write(self._handle or 0, view[: self._room])
                    view = view[done:]
                    self._room -= done
                    self._written += done
                    self._refused_at_s = None
                    self._trim()
            except OSError:
                self._refused()
        self._written += len(view)

    def close(self) -> None:
        if self._masked is not None:
            self._append(self._masked.end())
        if self._refused_at_s is not None and self._written:
            with suppress(OSError):  # an empty segment ends the hole
                self._next_segment()
        self._shut()

    def _may_try(self) -> bool:
        """Returns whether to write after a refusal. A log that took each byte that comes free would
        leave none to record how its run ended.
        """
        if self._refused_at_s is None:
            return True
        if abs(time.time() - self._refused_at_s) < RETRY_S:
            return False
        self._refused_at_s = time.time()
        disk = os.fstatvfs(self._directory)
        return disk.f_bavail * disk.f_frsize >= ROOM_BYTES

    def _refused(self) -> None:
        self._refused_at_s = time.time()
        if self._handle is not None and self._room == self._segment_bytes and self._later:
            # The file is empty, and the next bytes have another offset.
            with suppress(OSError):
                os.unlink(f"{self._run}.{self._later.pop()}.log", dir_fd=self._directory)
        self._room = 0
        self._shut()

    def _shut(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _next_segment(self) -> None:
        self._shut()
        name = f"{self._run}.{self._written}.log" if self._written else f"{self._run}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(name, flags, 0o600, dir_fd=self._directory)
        self._room = self._segment_bytes
        if self._written:
            self._later.append(self._written)

    def _trim(self) -> None:
        while len(self._later) > SEGMENTS - 1:
            os.unlink(f"{self._run}.{self._later.pop(0)}.log", dir_fd=self._directory)
