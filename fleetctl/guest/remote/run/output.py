"""Writes the output of a run to its log."""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable, Optional

    from fleetctl.guest.journal.logfile import LogFile
    from fleetctl.guest.remote.loop import Loop


READ_BYTES_MAX = 1024 * 1024
DRAIN_READS_MAX = 256  # a process of an open sandbox may go on writing for ever
LAST_WORDS_BYTES = 1024


class Output:
    def __init__(
        self,
        log: LogFile,
        loop: Loop,
        *,
        tell: Callable[[], None],
    ) -> None:
        """tell: called when there is more in the log."""
        self.hears: Optional[Callable[[bytes], None]] = None  # a follower of the output
        self._log = log
        self._loop = loop
        self._tell = tell
        self._tail = b""
        self._readable, self.writable = os.pipe()
        os.set_blocking(self._readable, False)
        loop.watch(self._readable, self._pump)

    @property
    def is_open(self) -> bool:
        """Returns whether any process may still write there."""
        return self._readable >= 0

    @property
    def last_words(self) -> str:
        return self._tail.decode("utf-8", "replace").strip()

    def say(self, text: str) -> None:
        """Writes a line of ours for the reader of the log."""
        self._log.write(f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
        self._tell()

    def drain(self) -> None:
        """Takes the output written by now."""
        for _ in range(DRAIN_READS_MAX):
            if not self._pump():
                return

    def close_writable(self) -> None:
        """Closes the writable end: no further process is started with it."""
        if self.writable >= 0:
            os.close(self.writable)
            self.writable = -1

    def stop(self) -> None:
        """Stops reading."""
        if self._readable >= 0:
            self._loop.forget(self._readable)
            os.close(self._readable)
            self._readable = -1

    def close(self) -> None:
        """Closes the complete log."""
        self._log.close()

    def _pump(self) -> bool:
        """Moves some output to the log; False when there is none now."""
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
