"""The log of one command: lines of its two streams in one file, each behind a marker.

Followers read from a byte offset on and are woken when it grows. A line reaches the log when it is
complete; a last one without a newline gets one, as the daemon's own labelling does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import BinaryIO

STDOUT = b"\x01\x01\x01"
STDERR = b"\x02\x02\x02"
LINE_BYTES_MAX = 1024 * 1024  # a longer one is cut: the emulator must not hold what never ends
READ_BYTES = 1024  # of one frame to a follower, as the daemon reads its file
_MARKS = re.compile(b"(\x01\x01\x01|\x02\x02\x02)")


class Log:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._path = path
        self._file: BinaryIO | None = None  # open while it is likely that more comes
        self.size = 0
        self.over = False  # no follower needs to wait for more
        self._changed = asyncio.Event()

    def append(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        self._file.write(data)
        self.size += len(data)
        self._tell()

    def finish(self) -> None:
        self.over = True
        if self._file is not None:
            self._file.close()
            self._file = None
        self._tell()

    def grown(self) -> Awaitable[object]:
        """Of the next change after this call, not after the first await of what it returns."""
        return self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def reading(self) -> BinaryIO:
        """A view of its own for one follower, which closes it."""
        return self._path.open("rb", buffering=0)

    def texts(self) -> dict[str, str]:
        """The body of a snapshot: all with the markers, and each stream without."""
        whole = self._path.read_bytes()
        streams = {STDOUT: bytearray(), STDERR: bytearray()}
        parts = _MARKS.split(whole)
        for mark, text in zip(parts[1::2], parts[2::2], strict=True):
            streams[mark] += text
        return {
            "output": whole.decode(errors="replace"),
            "stdout": streams[STDOUT].decode(errors="replace"),
            "stderr": streams[STDERR].decode(errors="replace"),
        }


class Labeller:
    """Cuts one stream into lines and appends each to the log behind the stream's marker."""

    def __init__(self, log: Log, mark: bytes) -> None:
        self._log = log
        self._mark = mark
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        self._rest += data
        end = self._rest.rfind(b"\n")
        if end >= 0:
            lines = bytes(self._rest[:end]).replace(b"\n", b"\n" + self._mark)
            del self._rest[: end + 1]
            self._log.append(self._mark + lines + b"\n")
        elif len(self._rest) > LINE_BYTES_MAX:
            self._log.append(self._mark + bytes(self._rest))
            self._rest.clear()

    def flush(self) -> None:
        if self._rest:
            self._log.append(self._mark + bytes(self._rest) + b"\n")
            self._rest.clear()
