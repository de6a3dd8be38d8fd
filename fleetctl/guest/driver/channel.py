"""The driver's line to the host: JSON lines on what were stdin and stdout when the process began.

Part of the guest; used by the driver alone. Both are moved to descriptors that no program inherits,
so output and child processes of code cannot reach the line.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from typing import Any, Optional

# Above the numbers that programs give their own files.
LOWEST_DESCRIPTOR = 64
LINE_BYTES_MAX = 64 * 1024 * 1024  # of a message from the host


class Channel:
    """Owns both ends. Any thread may send; one thread receives."""

    def __init__(self) -> None:
        self._received = os.fdopen(_duplicate_high(0), "rb", buffering=1 << 16)
        self._in = self._received.fileno()
        self._out = _duplicate_high(1)
        self._sending = threading.Lock()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        os.register_at_fork(after_in_child=self._let_go)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message. Raises RuntimeError in a process that was forked from the driver."""
        data = memoryview((json.dumps(message) + "\n").encode())
        if self._out < 0:
            raise RuntimeError("only the process that the host started can call it, not its forks")
        with self._sending:
            while data:
                data = data[os.write(self._out, data) :]

    def receive(self) -> Optional[dict[str, Any]]:
        """Returns the next message; None when the host has closed the line. Skips invalid lines."""
        while True:
            line = self._received.readline(LINE_BYTES_MAX)
            if not line:
                return None
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message

    def _let_go(self) -> None:
        """Closes a fork's copy of its parent's line. By number: the file's lock may be held."""
        for descriptor in (self._in, self._out):
            if descriptor >= 0:
                os.close(descriptor)
        self._in = self._out = -1
        self._sending = threading.Lock()


def _duplicate_high(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)
