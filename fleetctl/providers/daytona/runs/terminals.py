"""Runs a command with a terminal beside a task at Daytona: over a WebSocket, in a shell that
becomes the command.

The shell's earlier output, its prompt and the echo of its input, is not shown. Variables travel in
the handshake, the command in a file.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.providers.contract.exec import ExecStreams
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.daytona.runs.daytona_streams import STATE_DIR

if TYPE_CHECKING:
    from daytona.handle.async_pty_handle import AsyncPtyHandle

CALL_S = 30.0
LIFE_S = 86_400.0  # of a command
CELLS_MAX = 1000  # rows or columns that Daytona takes


class _Curtain:
    """Hides all up to a mark that the command itself makes."""

    def __init__(self, mark: bytes, show: Callable[[bytes], None]) -> None:
        self._mark = mark
        self._show = show
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
        """Returns the output of a shell that never became the command."""
        return self._hidden.decode("utf-8", "replace").strip()


async def run(
    sandbox: sdk.AsyncSandbox,
    words: Sequence[str],
    variables: Mapping[str, str],
    streams: ExecStreams,
    *,
    what: str,
) -> int:
    """The exit code of the command. Cancelled, it ends the terminal with all that runs in it."""
    assert streams.tty is not None
    name = f"exec-{token_hex(6)}"
    mark = token_hex(8)
    path = f"{STATE_DIR}/{name}.sh"
    curtain = _Curtain(f"{mark}\r\n".encode(), streams.out)
    async with retryable_call(f"{what} cannot be started", deadline_s=CALL_S):
        await sandbox.fs.upload_file(_terminal_script(words, mark).encode(), path)
        terminal = await sandbox.process.create_pty_session(
            name,
            on_data=curtain.take,
            envs={"TERM": "xterm-256color", **variables},
            pty_size=sdk.PtySize(*map(_clamp_cells, streams.tty)),
        )
    beside = [
        asyncio.ensure_future(_feed_input(terminal, curtain, streams.stdin)),
        asyncio.ensure_future(_follow_sizes(terminal, streams.sizes)),
    ]
    try:
        async with retryable_call(f"{what} was lost", deadline_s=LIFE_S):
            await terminal.send_input(f" exec sh {shlex.quote(path)}\n")
            ended = await terminal.wait()
    finally:
        await cancel_tasks(beside)
        await _end_terminal(sandbox, terminal, name)
    if not curtain.opened.is_set():
        raise Unavailable(
            f"{what} cannot be started: {curtain.text() or ended.error or 'no answer'}"
        )
    if ended.exit_code is None:
        return 1
    return int(ended.exit_code)


def _terminal_script(words: Sequence[str], mark: str) -> str:
    """Returns a script that removes itself, prints the mark, and becomes the command."""
    half = len(mark) // 2
    message = f"printf '%s%s\\n' {mark[:half]} {mark[half:]}"
    return f'rm -f -- "$0"\n{message}\nexec {shlex.join(words)}\n'


def _clamp_cells(count: int) -> int:
    return max(1, min(count, CELLS_MAX))


async def _feed_input(
    terminal: AsyncPtyHandle,
    curtain: _Curtain,
    data: AsyncIterator[bytes] | None,
) -> None:
    """Sends input once the command reads: earlier input would go to the shell that starts it."""
    if data is None:
        return
    await curtain.opened.wait()
    async for piece in data:
        await terminal.send_input(piece)


async def _follow_sizes(
    terminal: AsyncPtyHandle, sizes: AsyncIterator[tuple[int, int]] | None
) -> None:
    if sizes is None:
        return
    async for rows, columns in sizes:
        await terminal.resize(sdk.PtySize(rows=_clamp_cells(rows), cols=_clamp_cells(columns)))


async def _end_terminal(
    sandbox: sdk.AsyncSandbox,
    terminal: AsyncPtyHandle,
    name: str,
) -> None:
    """Ends a terminal; one that ended by itself needs no request."""
    still_runs = terminal.is_connected()
    await terminal.disconnect()
    if not still_runs:
        return
    with suppress(FleetctlError, *sdk_errors()):
        async with retryable_call("a terminal cannot be ended", deadline_s=CALL_S):
            await sandbox.process.kill_pty_session(name)
