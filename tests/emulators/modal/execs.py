"""A process in a sandbox with its streams: the entrypoint, or what TaskExecStart began."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.emulators.boxes import Box, BoxError, BoxProcess

from .streams import Input, Output

# What the shell says of a program that it cannot find or run; the real runtime does the same.
NOT_FOUND, NOT_EXECUTABLE = 127, 126


@dataclass(frozen=True, slots=True)
class Desired:
    """What to start. `size` is (rows, columns) of a terminal, None without one."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    timeout_s: float | None = None
    size: tuple[int, int] | None = None
    keep_bytes: int | None = None


class Exec:
    """`code` is None while it runs; negative for a signal."""

    def __init__(self, exec_id: str, desired: Desired) -> None:
        self.exec_id, self.desired = exec_id, desired
        kept = {} if desired.keep_bytes is None else {"keep_bytes": desired.keep_bytes}
        self.stdout, self.stderr = Output(**kept), Output(**kept)
        self.stdin = Input()
        self.code: int | None = None
        self.ended_at_s = 0.0
        self.timed_out = False
        self.lost = False  # the sandbox died under it
        self.process: BoxProcess | None = None
        self._ended = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, box: Box) -> None:
        """A program that cannot be started ends at once with the shell's code and message."""
        try:
            await (
                self._start_plain(box) if self.desired.size is None else self._start_terminal(box)
            )
        except BoxError as error:
            if not box.alive:
                self.lose()
                return
            self._fail(error)
            return
        self._following = asyncio.create_task(self._follow(box))
        if self.desired.timeout_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.desired.timeout_s, self._on_timeout)

    async def wait(self) -> None:
        await self._ended.wait()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def lose(self) -> None:
        """The sandbox is gone, and this process with it."""
        if self.code is None:
            self.lost, self.code = True, -signal.SIGKILL
        self._finish()

    async def _start_plain(self, box: Box) -> None:
        given = (self.stdin.open(), self.stdout.open(), self.stderr.open())
        try:
            self.process = await box.spawn(
                self.desired.argv,
                env=self.desired.env,
                cwd=self.desired.cwd,
                stdin=given[0],
                stdout=given[1],
                stderr=given[2],
            )
        finally:
            for end in (self.stdin, self.stdout, self.stderr):
                end.given()

    async def _start_terminal(self, box: Box) -> None:
        assert self.desired.size is not None
        self.process = await box.spawn(
            self.desired.argv, env=self.desired.env, cwd=self.desired.cwd, pty=True
        )
        assert self.process.terminal is not None
        self.process.resize(*self.desired.size)
        self.stdin.open_terminal(self.process.terminal)
        self.stdout.follow(os.dup(self.process.terminal))
        self.process.close_terminal()
        self.stderr.close()

    async def _follow(self, box: Box) -> None:
        assert self.process is not None
        code = await self.process.wait()
        if self.code is None and not self.lost:
            # When the box is gone, its end was no doing of the process.
            self.lost = not box.alive and code == -signal.SIGKILL
            self.code = code
        self._finish()

    def _fail(self, error: BoxError) -> None:
        missing = error.errno == 2
        self.code = NOT_FOUND if missing else NOT_EXECUTABLE
        self.stderr.feed(f"{self.desired.argv[0]}: {error.strerror}\n".encode())
        self._finish()
        self.stdout.close()
        self.stderr.close()

    def _finish(self) -> None:
        """Its own streams stay open for as long as a child of it holds them."""
        self.ended_at_s = self.ended_at_s or time.time()
        if self._timer is not None:
            self._timer.cancel()
        if self.lost:
            self.stdout.close()
            self.stderr.close()
        self.stdin.close()
        self._ended.set()

    def _on_timeout(self) -> None:
        self.timed_out = True
        self.kill()
