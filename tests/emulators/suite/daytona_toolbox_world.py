"""A Daytona emulator on a thread of this process, the SDK in front of it, and the truth behind it.

For the tests of the toolbox: what the SDK says is compared with files and processes of the host.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from daytona import AsyncDaytona, Daytona, DaytonaConfig, Sandbox
from daytona.handle import pty_handle

from tests.emulators.daytona.server import Server
from tests.emulators.daytona.state import World

T = TypeVar("T")
PATIENCE_S = 120.0  # against a hang alone: alone nothing takes a second, beside others it may


class Place:
    """Use from the test's thread; the emulator's loop runs on another one."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    @property
    def world(self) -> World:
        return self._server.world

    def config(self) -> DaytonaConfig:
        env = self._server.env
        return DaytonaConfig(api_key=env["DAYTONA_API_KEY"], api_url=env["DAYTONA_API_URL"])

    def client(self) -> Daytona:
        return Daytona(self.config())

    def async_client(self) -> AsyncDaytona:
        return AsyncDaytona(self.config())

    def host(self, sandbox: Sandbox, path: str) -> Path:
        """Where a file of the sandbox lies on this machine."""
        box = self.world.sandboxes[sandbox.id].box
        assert box is not None, "the sandbox has no box"
        return box.host_path(path if path.startswith("/") else f"/home/daytona/{path}")

    def commands(self, sandbox: Sandbox) -> list[str]:
        """The command lines of the processes that live in the sandbox."""
        box = self.world.sandboxes[sandbox.id].box
        if box is None or not box.alive:
            return []
        return [_command_line(pid) for pid in _descendants(box.pid)]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the emulator's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


@contextmanager
def place(directory: Path) -> Iterator[Place]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="daytona-emulator", daemon=True)
    thread.start()
    server = Server(directory)
    # For a PTY whose first message comes later than in 0.1 s the SDK waits again where that is a
    # TimeoutError; the library below it raises `queue.Empty`.
    patch = pytest.MonkeyPatch()
    patch.setattr(pty_handle, "TimeoutError", (TimeoutError, queue.Empty), raising=False)
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(PATIENCE_S)
        yield Place(server, loop)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(PATIENCE_S)
        asyncio.run_coroutine_threadsafe(_cancelled(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        patch.undo()


async def _cancelled() -> None:
    """What the server's libraries leave behind would complain when the loop closes."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def until(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, f"never came: {what}"
        time.sleep(0.02)


def _descendants(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    children = [int(child) for child in text.split()]
    return [*children, *(far for child in children for far in _descendants(child))]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except FileNotFoundError:
        return ""
