"""One process in a box, in the manner of asyncio's subprocesses."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class BoxProcess:
    """`returncode` is None while it lives; negative is a signal, -9 also when the box died."""

    def __init__(self, pid: int, send_signal: Callable[[int, bool], None]) -> None:
        self.pid = pid  # as the host numbers it
        self.returncode: int | None = None
        self.terminal: int | None = None  # the master's descriptor, with pty=True; the caller's
        self._ended = asyncio.Event()
        self._send_signal = send_signal

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """To it, or to its whole process group. Nothing happens when it has ended."""
        if self.returncode is None:
            self._send_signal(number, group)

    def kill(self) -> None:
        """SIGKILL for it and for what it started in its process group."""
        self.send_signal(signal.SIGKILL, group=True)

    def resize(self, rows: int, columns: int) -> None:
        """Only with pty=True."""
        import termios

        assert self.terminal is not None, "only a process with a terminal has a size"
        termios.tcsetwinsize(self.terminal, (rows, columns))

    def close_terminal(self) -> None:
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None

    def settle(self, code: int) -> None:
        """Called by the box, once, when the process has ended."""
        if self.returncode is None:
            self.returncode = code
            self._ended.set()
