"""Commands beside a task at Daytona, each in a session of its own, or in a terminal over a
WebSocket.

A session's output is text, and its input is a file that is there before its command begins. For a
terminal, variables travel in the handshake, and the command in a file.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_errors import (
    is_not_found,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.daytona.runs import daytona_endings
from fleetctl.providers.daytona.runs.daytona_endings import state_of
from fleetctl.providers.daytona.runs.daytona_streams import STATE_DIR
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.service_calls import ToleratedAnswer

if TYPE_CHECKING:
    from daytona.handle.async_pty_handle import AsyncPtyHandle


CALL_S = 30.0
INPUT_S = 600.0  # to bring the input there
LIFE_S = 86_400.0  # of a command
LINK_S = 3600  # that a link to a port works

CELLS_MAX = 1000  # rows or columns that Daytona takes


class DaytonaEntering:
    """A connection of its own, made at the first call; home is not needed."""

    terminal = True
    binary = False

    def __init__(self, home: Path, account: Account) -> None:
        del home
        self._connection = DaytonaConnection(account=lambda: account)

    async def execute(
        self,
        place: ExecTarget,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> int:
        sandbox = await self._sandbox(place)
        if streams.tty is not None:
            words = exec_channel.exec_command(place, argv, work=f"{STATE_DIR}/work")
            given = exec_channel.exec_variables(place)
            what = f"a command beside run `{place.run}`"
            return await run(
                sandbox,
                words,
                given,
                streams,
                what=what,
            )
        session = f"exec-{token_hex(6)}"
        what = f"a command beside run `{place.run}` cannot be started"
        async with retryable_call(what, deadline_s=INPUT_S + CALL_S):
            source = await _upload_input(sandbox, session, streams.stdin)
            await sandbox.process.create_session(session)
        try:
            async with retryable_call(
                f"the command beside run `{place.run}` was lost", deadline_s=LIFE_S
            ):
                return await _run_command(
                    sandbox, session, _command_line(place, argv, source), streams
                )
        finally:
            with suppress(FleetctlError):
                await _end_session(sandbox, session, source)

    async def link(self, place: ExecTarget, port: int) -> str:
        sandbox = await self._sandbox(place)
        async with retryable_call(
            f"port {port} of run `{place.run}` has no link", deadline_s=CALL_S
        ):
            made = await sandbox.create_signed_preview_url(port, expires_in_seconds=LINK_S)
        return str(made.url)

    async def close(self) -> None:
        await self._connection.close()

    async def _sandbox(self, place: ExecTarget) -> sdk.AsyncSandbox:
        """Returns the sandbox of a run. Raises Refused when it has ended."""
        client = await self._connection.client()
        sandbox = None
        with ToleratedAnswer(is_not_found):
            async with retryable_call(f"run `{place.run}` cannot be looked up", deadline_s=CALL_S):
                sandbox = await client.get(place.handle)
        if sandbox is None or not daytona_endings.may_work(state_of(sandbox)):
            raise Refused(
                f"the sandbox of run `{place.run}` is gone, so no command can join it",
                hint=ENDED_HINT,
            )
        return sandbox


def _command_line(
    place: ExecTarget,
    argv: tuple[str, ...],
    source: str,
) -> str:
    """Returns a command line for a program of its own: a command that ends the session's shell
    would leave no exit code.
    """
    given = [f"{name}={value}" for name, value in exec_channel.exec_variables(place).items()]
    words = ["env", *given, *exec_channel.exec_command(place, argv, work=f"{STATE_DIR}/work")]
    return f"{shlex.join(words)} <{source}"


async def _upload_input(
    sandbox: sdk.AsyncSandbox,
    session: str,
    data: AsyncIterator[bytes] | None,
) -> str:
    """The file in the sandbox that the command reads."""
    if data is None:
        return "/dev/null"
    whole = b"".join([piece async for piece in data])
    path = f"{STATE_DIR}/{session}.in"
    await sandbox.fs.upload_file(whole, path)
    return path


async def _run_command(
    sandbox: sdk.AsyncSandbox,
    session: str,
    line: str,
    streams: ExecStreams,
) -> int:
    async def out(text: str) -> None:
        streams.out(text.encode())

    async def err(text: str) -> None:
        streams.err(text.encode())

    request = sdk.SessionExecuteRequest(command=line, run_async=True)
    begun = await sandbox.process.execute_session_command(session, request)
    await sandbox.process.get_session_command_logs_async(session, begun.cmd_id, out, err)
    ended = await sandbox.process.get_session_command(session, begun.cmd_id)
    if ended.exit_code is None:
        return 1
    return int(ended.exit_code)


async def _end_session(
    sandbox: sdk.AsyncSandbox,
    session: str,
    source: str,
) -> None:
    """Ends the session with its processes; a session that is gone with its sandbox needs no
    cleanup.
    """
    with suppress(FleetctlError, *sdk_errors()):
        async with retryable_call("a session cannot be ended", deadline_s=CALL_S):
            await sandbox.process.delete_session(session)
            if source.startswith(STATE_DIR):
                await sandbox.fs.delete_file(source)


_: type[Entering] = DaytonaEntering


class _Curtain:
    """Hides the shell's output, its prompt and the echo of its input, up to a mark that the command
    itself makes.
    """

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
