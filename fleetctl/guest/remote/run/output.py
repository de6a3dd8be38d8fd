"""What a run writes: all of it into its log, and the last of it for people.

Made by attempt.py, which hands the writable end to each process that it starts.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from fleetctl.guest.journal.logfile import LogFile
    from fleetctl.guest.remote.loop import Loop

READ_BYTES_MAX = 1024 * 1024
DRAIN_READS_MAX = 256  # last words that a process of an open sandbox keeps talking over
LAST_WORDS_BYTES = 1024


class Output:
    def __init__(self, log: LogFile, loop: Loop, *, tell: Callable[[], None]) -> None:
        """tell: called when there is more in the log."""
        self.hears: Optional[Callable[[bytes], None]] = None  # one that wants the output too
        self._log, self._loop, self._tell = log, loop, tell
        self._tail = b""
        self._readable, self.writable = os.pipe()
        os.set_blocking(self._readable, False)
        loop.watch(self._readable, self._pump)

    @property
    def is_open(self) -> bool:
        """Whether somebody may still write there."""
        return self._readable >= 0

    @property
    def last_words(self) -> str:
        return self._tail.decode("utf-8", "replace").strip()

    def say(self, text: str) -> None:
        """A word of ours to the person who reads the log."""
        self._log.write(f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
        self._tell()

    def drain(self) -> None:
        """Take in what has been written by now."""
        for _ in range(DRAIN_READS_MAX):
            if not self._pump():
                return

    def close_writable(self) -> None:
        """Nothing more is started that writes there."""
        if self.writable >= 0:
            os.close(self.writable)
            self.writable = -1

    def stop(self) -> None:
        """Listen no longer."""
        if self._readable >= 0:
            self._loop.forget(self._readable)
            os.close(self._readable)
            self._readable = -1

    def close(self) -> None:
        """The log is whole."""
        self._log.close()

    def _pump(self) -> bool:
        """Move some output to the log; False when there is none now."""
        if self._readable < 0:
            return False
        try:
            data = os.read(self._readable, READ_BYTES_MAX)
        except BlockingIOError:
            return False
        if not data:
            self.stop()
            return False
        self._log.write(data)
        if self.hears is not None:
            self.hears(data)
        self._tail = (self._tail + data)[-LAST_WORDS_BYTES:]
        self._tell()
        return True
