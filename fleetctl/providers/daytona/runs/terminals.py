"""A command with a terminal beside a task at Daytona: over a WebSocket, to a shell that becomes
it.

What the shell says before, its prompt and the echo of what is typed into it, is not shown.
Variables travel in the handshake, the command in a file.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.tasks import cancel
from fleetctl.providers.contract.exec import Streams
from fleetctl.providers.daytona.connection.errors import asking, is_of_the_sdk
from fleetctl.providers.daytona.runs.streams import STATE_DIR

if TYPE_CHECKING:
    import daytona
    from daytona.handle.async_pty_handle import AsyncPtyHandle

CALL_S = 30.0
LIFE_S = 86_400.0  # of a command
CELLS_MAX = 1000  # rows or columns that Daytona takes


class _Curtain:
    """Hides all up to a mark that the command itself makes."""

    def __init__(self, mark: bytes, show: Callable[[bytes], None]) -> None:
        self._mark, self._show = mark, show
        self._hidden = b""
        self.opened = asyncio.Event()

    def take(self, data: bytes) -> None:
        if self.opened.is_set():
            self._show(data)
            return
        self._hidden += data
        _, found, rest = self._hidden.partition(self._mark)
        if found:
            self.opened.set()
            if rest:
                self._show(rest)

    def text(self) -> str:
        """What a shell said that never came to the command."""
        return self._hidden.decode("utf-8", "replace").strip()


async def run(
    sandbox: daytona.AsyncSandbox,
    words: Sequence[str],
    variables: Mapping[str, str],
    streams: Streams,
    *,
    what: str,
) -> int:
    """The exit code of the command. Cancelled, it ends the terminal with all that runs in it."""
    import daytona

    assert streams.tty is not None
    name, mark = f"exec-{token_hex(6)}", token_hex(8)
    path = f"{STATE_DIR}/{name}.sh"
    curtain = _Curtain(f"{mark}\r\n".encode(), streams.out)
    async with asking(f"{what} cannot be started", deadline_s=CALL_S):
        await sandbox.fs.upload_file(_script(words, mark).encode(), path)
        terminal = await sandbox.process.create_pty_session(
            name,
            on_data=curtain.take,
            envs={"TERM": "xterm-256color", **variables},
            pty_size=daytona.PtySize(*map(_cells, streams.tty)),
        )
    beside = [
        asyncio.ensure_future(_feed(terminal, curtain, streams.stdin)),
        asyncio.ensure_future(_resize(terminal, streams.sizes)),
    ]
    try:
        async with asking(f"{what} was lost", deadline_s=LIFE_S):
            await terminal.send_input(f" exec sh {shlex.quote(path)}\n")
            ended = await terminal.wait()
    finally:
        await cancel(beside)
        await _tidy(sandbox, terminal, name)
    if not curtain.opened.is_set():
        raise Unavailable(
            f"{what} cannot be started: {curtain.text() or ended.error or 'no answer'}"
        )
    return 1 if ended.exit_code is None else int(ended.exit_code)


def _script(words: Sequence[str], mark: str) -> str:
    """Removes itself, says that it is there, and becomes the command."""
    half = len(mark) // 2
    message = f"printf '%s%s\\n' {mark[:half]} {mark[half:]}"
    return f'rm -f -- "$0"\n{message}\nexec {shlex.join(words)}\n'


def _cells(count: int) -> int:
    return max(1, min(count, CELLS_MAX))


async def _feed(
    terminal: AsyncPtyHandle, curtain: _Curtain, data: AsyncIterator[bytes] | None
) -> None:
    """What is typed before the command reads would go to the shell that starts it."""
    if data is None:
        return
    await curtain.opened.wait()
    async for piece in data:
        await terminal.send_input(piece)


async def _resize(terminal: AsyncPtyHandle, sizes: AsyncIterator[tuple[int, int]] | None) -> None:
    import daytona

    if sizes is None:
        return
    async for rows, columns in sizes:
        await terminal.resize(daytona.PtySize(rows=_cells(rows), cols=_cells(columns)))


async def _tidy(sandbox: daytona.AsyncSandbox, terminal: AsyncPtyHandle, name: str) -> None:
    """Of one that ended by itself there is nothing left to end."""
    still_runs = terminal.is_connected()
    await terminal.disconnect()
    if not still_runs:
        return
    try:
        async with asking("a terminal cannot be ended", deadline_s=CALL_S):
            await sandbox.process.kill_pty_session(name)
    except Exception as error:
        if not is_of_the_sdk(error) and not isinstance(error, FleetctlError):
            raise
