"""Commands beside a task at Daytona, each in a session of its own, or in a terminal (terminals.py).

Of a session the output is text, and its input is a file that is there before it begins.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.exec import ENDED_HINT, Entering, Place, Streams
from fleetctl.providers.daytona.connection.client import Connection
from fleetctl.providers.daytona.connection.errors import asking, is_not_found, is_of_the_sdk
from fleetctl.providers.daytona.runs import endings, terminals
from fleetctl.providers.daytona.runs.endings import state_of
from fleetctl.providers.daytona.runs.streams import STATE_DIR
from fleetctl.providers.remote.sandboxes import exec

if TYPE_CHECKING:
    import daytona

CALL_S = 30.0
INPUT_S = 600.0  # to bring the input there
LIFE_S = 86_400.0  # of a command
LINK_S = 3600  # that a link to a port works


class DaytonaEntering:
    """A connection of its own, made at the first call; home is not needed."""

    terminal = True
    binary = False

    def __init__(self, home: Path, account: Account) -> None:
        del home
        self._connection = Connection(account=lambda: account)

    async def execute(self, place: Place, argv: tuple[str, ...], streams: Streams) -> int:
        sandbox = await self._sandbox(place)
        if streams.tty is not None:
            words = exec.command(place, argv, work=f"{STATE_DIR}/work")
            given, what = exec.variables(place), f"a command beside run `{place.run}`"
            return await terminals.run(sandbox, words, given, streams, what=what)
        session = f"exec-{token_hex(6)}"
        what = f"a command beside run `{place.run}` cannot be started"
        async with asking(what, deadline_s=INPUT_S + CALL_S):
            source = await _input(sandbox, session, streams.stdin)
            await sandbox.process.create_session(session)
        try:
            async with asking(f"the command beside run `{place.run}` was lost", deadline_s=LIFE_S):
                return await _run(sandbox, session, _line(place, argv, source), streams)
        finally:
            with suppress(FleetctlError):
                await _tidy(sandbox, session, source)

    async def link(self, place: Place, port: int) -> str:
        sandbox = await self._sandbox(place)
        async with asking(f"port {port} of run `{place.run}` has no link", deadline_s=CALL_S):
            made = await sandbox.create_signed_preview_url(port, expires_in_seconds=LINK_S)
        return str(made.url)

    async def close(self) -> None:
        await self._connection.close()

    async def _sandbox(self, place: Place) -> daytona.AsyncSandbox:
        """Raises Refused when it is over."""
        client = await self._connection.client()
        sandbox = None
        try:
            async with asking(f"run `{place.run}` cannot be looked up", deadline_s=CALL_S):
                sandbox = await client.get(place.handle)
        except Exception as error:
            if not is_not_found(error):
                raise
        if sandbox is None or not endings.may_work(state_of(sandbox)):
            raise Refused(
                f"the sandbox of run `{place.run}` is gone, so no command can join it",
                hint=ENDED_HINT,
            )
        return sandbox


def _line(place: Place, argv: tuple[str, ...], source: str) -> str:
    """A program of its own: what ends the session's shell would leave no exit code."""
    given = [f"{name}={value}" for name, value in exec.variables(place).items()]
    words = ["env", *given, *exec.command(place, argv, work=f"{STATE_DIR}/work")]
    return f"{shlex.join(words)} <{source}"


async def _input(
    sandbox: daytona.AsyncSandbox, session: str, data: AsyncIterator[bytes] | None
) -> str:
    """The file in the sandbox that the command reads."""
    if data is None:
        return "/dev/null"
    whole = b"".join([piece async for piece in data])
    path = f"{STATE_DIR}/{session}.in"
    await sandbox.fs.upload_file(whole, path)
    return path


async def _run(sandbox: daytona.AsyncSandbox, session: str, line: str, streams: Streams) -> int:
    from daytona import SessionExecuteRequest

    async def out(text: str) -> None:
        streams.out(text.encode())

    async def err(text: str) -> None:
        streams.err(text.encode())

    request = SessionExecuteRequest(command=line, run_async=True)
    begun = await sandbox.process.execute_session_command(session, request)
    await sandbox.process.get_session_command_logs_async(session, begun.cmd_id, out, err)
    ended = await sandbox.process.get_session_command(session, begun.cmd_id)
    return 1 if ended.exit_code is None else int(ended.exit_code)


async def _tidy(sandbox: daytona.AsyncSandbox, session: str, source: str) -> None:
    """End the session with whatever runs in it; what is gone with its sandbox needs no tidying."""
    try:
        async with asking("a session cannot be ended", deadline_s=CALL_S):
            await sandbox.process.delete_session(session)
            if source.startswith(STATE_DIR):
                await sandbox.fs.delete_file(source)
    except Exception as error:
        if not is_of_the_sdk(error) and not isinstance(error, FleetctlError):
            raise


_: type[Entering] = DaytonaEntering
