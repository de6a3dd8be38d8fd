"""A program on a real terminal, and what it has shown since the last words were typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 240.0  # turns a hang into a failure that says what was shown
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x07")


def visible(shown: str) -> str:
    """Without what moves the cursor, colours or rings."""
    return _CONTROLS.sub("", shown)


def _set_size(screen: int, rows: int, columns: int) -> None:
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


class Terminal:
    def __init__(
        self,
        argv: Sequence[str],
        environ: dict[str, str],
        directory: Path,
        *,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        """size: rows and columns."""
        self._argv, self._environ, self._directory = list(argv), environ, directory
        self._size = size

    def __enter__(self) -> Terminal:
        self._pid, self._screen = pty.fork()
        if self._pid == 0:
            _set_size(0, *self._size)  # here: the program must find it, whoever runs first
            os.chdir(self._directory)
            os.execvpe(self._argv[0], self._argv, self._environ)
        return self

    def __exit__(self, *error: object) -> None:
        if self._screen >= 0:
            os.close(self._screen)  # hangs up
            os.waitpid(self._pid, 0)

    def resize(self, rows: int, columns: int) -> None:
        _set_size(self._screen, rows, columns)

    def types(self, text: str, *, until: str) -> str:
        """What is shown until `until` is among it."""
        os.write(self._screen, text.encode())
        return self.shows(until)

    def shows(self, until: str) -> str:
        shown, give_up_at_s = "", time.monotonic() + PATIENCE_S
        while until not in visible(shown):
            left_s = give_up_at_s - time.monotonic()
            poller = select.poll()  # `select` takes no descriptor above 1,023
            poller.register(self._screen, select.POLLIN)
            assert left_s > 0 and poller.poll(left_s * 1000), repr(shown)
            shown += os.read(self._screen, 4096).decode(errors="replace")
        return shown

    def ends(self) -> tuple[int, str]:
        """The exit code, and what was shown until then."""
        shown = b""
        try:
            while data := os.read(self._screen, 4096):
                shown += data
        except OSError:  # Linux says so when the other end is closed
            data = b""
        os.close(self._screen)
        self._screen = -1
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")
