"""Interpreter contexts: one Python process each, whose variables stay from call to call."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulators.boxes import BoxProcess

from .calls import Toolbox, end_tree
from .errors import ToolboxError, timestamp
from .pipes import Reader, write_all

DEFAULT = "default"
LANGUAGE = "python"
TIMEOUT_S = 600.0  # as the SDK documents for a call that names none
INTERRUPT_GRACE_S = 1.0  # a guess: how long code may take to notice its KeyboardInterrupt
_WORKER = Path(__file__).with_name("interpreter_worker.py").read_text()

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]


class TimedOut(Exception):
    """The code did not end in its time."""


@dataclass(slots=True)
class Context:
    """Owns its process, which starts with the first code and again after one had to be killed."""

    id: str
    cwd: str
    created_at: str = field(default_factory=timestamp)
    process: BoxProcess | None = None
    closed: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one execution at a time
    messages: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue)
    stdin: int = -1  # the process's standard input
    readers: list[Reader] = field(default_factory=list)
    rest: bytearray = field(default_factory=bytearray)
    watcher: asyncio.Future[None] | None = None

    def body(self) -> dict[str, object]:
        return {
            "id": self.id,
            "cwd": self.cwd,
            "createdAt": self.created_at,
            "active": not self.closed,
            "language": LANGUAGE,
        }

    async def run(self, toolbox: Toolbox, desired: Message, timeout_s: float, send: Send) -> None:
        """Hands every message of the code on to `send`. Raises TimedOut, and ToolboxError when the
        process ended by itself."""
        async with self.turn:
            if self.process is None or self.process.returncode is not None:
                await self._start(toolbox)
            await write_all(self.stdin, json.dumps(desired).encode() + b"\n")
            try:
                async with asyncio.timeout(timeout_s or None):
                    await self._relay(send)
            except TimeoutError:
                await self._interrupt()
                raise TimedOut from None

    def close(self) -> None:
        self.closed = True
        self._end()

    async def _start(self, toolbox: Toolbox) -> None:
        self._end()
        stdin, self.stdin = os.pipe()
        os.set_blocking(self.stdin, False)
        told, tells = os.pipe()
        loose, loosely = os.pipe()
        self.messages = asyncio.Queue()
        self.rest.clear()
        self.readers = [Reader(told, self._on_told), Reader(loose, self._on_loose)]
        try:
            self.process = await toolbox.spawn(
                ["python3", "-u", "-c", _WORKER],
                cwd=self.cwd,
                stdin=stdin,
                stdout=tells,
                stderr=loosely,
            )
        finally:
            for descriptor in (stdin, tells, loosely):
                os.close(descriptor)
        self.watcher = asyncio.ensure_future(self._ended(self.process, self.messages))

    async def _ended(self, process: BoxProcess, messages: asyncio.Queue[Message | None]) -> None:
        await process.wait()
        if process is self.process and self.readers:
            self.readers[0].drain()
        messages.put_nowait(None)

    async def _relay(self, send: Send) -> None:
        while (message := await self.messages.get()) is not None:
            if message["type"] == "done":
                # What child processes wrote came before: they had the pipe, not us.
                self.readers[1].drain()
                while not self.messages.empty() and (late := self.messages.get_nowait()):
                    await send(late)
                return
            await send(message)
        raise ToolboxError(500, "interpreter process ended unexpectedly")

    async def _interrupt(self) -> None:
        """As Ctrl-C would; what does not end then is killed, and its variables with it."""
        assert self.process is not None, "only code that runs can time out"
        self.process.send_signal(signal.SIGINT)

        async def forget(_message: Message) -> None:
            return None

        try:
            async with asyncio.timeout(INTERRUPT_GRACE_S):
                await self._relay(forget)
        except (TimeoutError, ToolboxError):
            self._end()

    def _on_told(self, data: bytes) -> None:
        self.rest += data
        *lines, rest = self.rest.split(b"\n")
        self.rest = bytearray(rest)
        for line in lines:
            self.messages.put_nowait(json.loads(line))

    def _on_loose(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        self.messages.put_nowait({"type": "stdout", "text": text})

    def _end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            end_tree(self.process.pid)
        self.process = None
        for reader in self.readers:
            reader.close()
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1
