"""Pseudo-terminals: a shell with a terminal each, to which any number of clients connect.

What it writes goes to all who are connected at that moment; nobody is shown what was before.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field

from tests.emulators.boxes import BoxProcess

from .calls import Toolbox, end_tree
from .errors import ToolboxError, timestamp
from .pipes import Reader, write_all

TERM = "xterm-256color"
SIDE_MAX = 1000  # rows or columns, as the SDK documents


@dataclass(frozen=True, slots=True)
class End:
    code: int
    reason: str  # the name of a signal, or empty

    def body(self) -> dict[str, object]:
        return {"exitCode": self.code, **({"exitReason": self.reason} if self.reason else {})}


@dataclass(slots=True)
class Terminal:
    """Owns its shell and the terminal's descriptor. `end` is there when the shell has ended."""

    id: str
    cwd: str
    envs: dict[str, str]
    cols: int
    rows: int
    lazy: bool = False
    created_at: str = field(default_factory=timestamp)
    end: End | None = None
    process: BoxProcess | None = None
    clients: set[asyncio.Queue[bytes | End]] = field(default_factory=set)
    reader: Reader | None = None
    watcher: asyncio.Future[None] | None = None

    def body(self) -> dict[str, object]:
        return {
            "id": self.id,
            "cwd": self.cwd,
            "envs": self.envs,
            "cols": self.cols,
            "rows": self.rows,
            "createdAt": self.created_at,
            "active": self.process is not None and self.end is None,
            "lazyStart": self.lazy,
        }

    async def start(self, toolbox: Toolbox) -> None:
        if self.process is not None:
            return
        self.process = await toolbox.spawn(
            [toolbox.shell, "-i"], cwd=self.cwd, env=self.envs, pty=True
        )
        assert self.process.terminal is not None, "it was spawned with a terminal"
        self.process.resize(self.rows, self.cols)
        # The reader closes its descriptor by itself; writing has one of its own.
        self.reader = Reader(os.dup(self.process.terminal), self._broadcast)
        os.set_blocking(self.process.terminal, False)
        self.watcher = asyncio.ensure_future(self._watch(self.process, self.reader))

    def connect(self) -> asyncio.Queue[bytes | End]:
        queue: asyncio.Queue[bytes | End] = asyncio.Queue()
        self.clients.add(queue)
        if self.end is not None:
            queue.put_nowait(self.end)
        return queue

    async def write(self, data: bytes) -> None:
        """Input to a shell that has ended goes nowhere."""
        if self.process is not None and self.process.terminal is not None:
            try:
                await write_all(self.process.terminal, data)
            except OSError:
                return

    def resize(self, *, cols: int, rows: int) -> None:
        if self.end is not None:
            raise ToolboxError(410, "PTY session has ended", code="SESSION_ENDED")
        self.cols, self.rows = cols, rows
        if self.process is not None:
            self.process.resize(rows, cols)

    def close(self) -> None:
        if self.process is not None and self.process.returncode is None:
            end_tree(self.process.pid)

    def _broadcast(self, data: bytes | End) -> None:
        for client in self.clients:
            client.put_nowait(data)

    async def _watch(self, process: BoxProcess, reader: Reader) -> None:
        code = await process.wait()
        reader.drain()
        reader.close()
        process.close_terminal()
        reason = signal.Signals(-code).name if code < 0 else ""
        self.end = End(code if code >= 0 else 128 - code, reason)
        self._broadcast(self.end)


def size_of(number: int) -> int:
    """Raises ToolboxError for what no terminal has."""
    if not 0 < number <= SIDE_MAX:
        raise ToolboxError(400, f"terminal size must be between 1 and {SIDE_MAX}: {number}")
    return number
