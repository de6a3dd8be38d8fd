"""Sessions of interpreters on Daytona: a sandbox, and the driver as a command of a session in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox whose maker died
ends by its TTL.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import daytona

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.providers.contract.session import DRIVER_COMMAND, OpenSession, Session, SessionRequest
from fleetctl.providers.daytona.connection.errors import (
    asking,
    is_conflict,
    is_not_found,
    is_of_the_sdk,
    words,
)
from fleetctl.providers.daytona.interpreter import sandbox as making
from fleetctl.providers.daytona.interpreter.sandbox import CALL_S, Shared
from fleetctl.providers.daytona.runs.deletes import discard, end
from fleetctl.providers.daytona.runs.endings import is_over, state_of
from fleetctl.providers.daytona.runs.streams import Put, pieces
from fleetctl.providers.remote.connection.throttled import unless_throttled
from fleetctl.providers.remote.sandboxes.session import RemoteSession

NAME = "driver"  # of the session in the sandbox
PIECES_AHEAD = 256
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # until a stream that dropped is opened anew


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Raises Refused or Unavailable; then no sandbox is left."""
    making.refuse_what_is_not_ours(request)
    shared = making.shared_by(home)
    shared.join()
    try:
        sandbox = await unless_throttled(
            lambda: making.make(home, shared, request), patience_s=making.START_S
        )
        try:
            workspace = await unless_throttled(
                lambda: making.prepare(home, sandbox, request), patience_s=making.START_S
            )
            command = await _start_driver(sandbox, workspace)
        except BaseException:
            await discard(await shared.connection.client(), sandbox.id)
            raise
    except BaseException:
        await shared.leave()
        raise
    session = DaytonaSession(shared, sandbox, command, lifetime_s=request.lifetime_s)
    session.place_root = request.place.mount_path if request.place else ""
    session.workspace = workspace
    return session


async def _start_driver(sandbox: daytona.AsyncSandbox, workspace: str) -> str:
    """The id of its command. It is a child of the session's shell, which must live on."""
    words_ = [*DRIVER_COMMAND, making.DRIVER]
    text = shlex.join(words_)
    if workspace:
        text = f"cd {shlex.quote(workspace)} && {text}"
    request = daytona.SessionExecuteRequest(
        command=shlex.join(["sh", "-c", text]), run_async=True, suppress_input_echo=True
    )

    async def opened() -> None:
        async with asking("the driver cannot be started", deadline_s=CALL_S):
            await sandbox.process.create_session(NAME)

    async def begun() -> str:
        async with asking("the driver cannot be started", deadline_s=CALL_S):
            return (await sandbox.process.execute_session_command(NAME, request)).cmd_id

    await unless_throttled(opened, patience_s=CALL_S)
    return await unless_throttled(begun, patience_s=CALL_S)


class DaytonaSession(RemoteSession):
    def __init__(
        self, shared: Shared, sandbox: daytona.AsyncSandbox, command: str, *, lifetime_s: float
    ) -> None:
        super().__init__(lifetime_s=lifetime_s)
        self._shared = shared
        self._sandbox = sandbox
        self._command = command
        self._heard = 0  # characters of the driver's standard output

    async def send(self, line: str) -> None:
        process = self._sandbox.process
        try:
            async with asking("the sandbox cannot be written to", deadline_s=CALL_S):
                await process.send_session_command_input(NAME, self._command, line + "\n")
        except FleetctlError as error:
            raise Unavailable(str(error)) from error
        except Exception as error:
            if is_not_found(error) or is_conflict(error):
                raise Unavailable("the sandbox cannot be written to: it is over") from error
            raise

    async def lines(self) -> AsyncIterator[str]:
        again_s = AGAIN_S
        while True:
            before = self._heard
            try:
                async with contextlib.aclosing(self._pieces()) as fresh:
                    async for piece in fresh:
                        for line in self._lines_of(piece):
                            yield line
                break  # the command has ended
            except Exception as error:
                if not is_of_the_sdk(error):
                    raise
                if await self._is_over(error):
                    break
            again_s = AGAIN_S if self._heard > before else min(2 * again_s, AGAIN_MAX_S)
            await asyncio.sleep(again_s)
        await self._learn_why()

    def _pieces(self) -> AsyncGenerator[str, None]:
        """What is new of the driver's output. A stream tells it from the first byte on."""
        streamed = 0  # characters of this stream

        async def read(put: Put[str]) -> None:
            async def take(text: str) -> None:
                nonlocal streamed
                fresh = text[max(0, self._heard - streamed) :]
                streamed += len(text)
                if fresh:
                    self._heard += len(fresh)
                    await put(fresh)

            process = self._sandbox.process
            await process.get_session_command_logs_async(
                NAME, self._command, take, self._hear_error
            )

        return pieces(read, ahead=PIECES_AHEAD)

    async def reload(self) -> None:
        """Volumes show what others wrote as soon as it is there."""

    async def _end_sandbox(self) -> None:
        await end(await self._shared.connection.client(), self._sandbox, deadline_s=CALL_S)
        await self._shared.leave()

    async def _is_over(self, error: Exception) -> bool:
        """Whether a stream broke because there is nothing more to hear."""
        client = await self._shared.connection.client()
        try:
            async with asking("the sandbox cannot be looked up", deadline_s=CALL_S):
                found = await client.get(self._sandbox.id)
        except FleetctlError:
            return False  # nothing is known; the next stream tells
        except Exception as missing:
            if not is_not_found(missing):
                raise
            return True
        if not is_over(state_of(found)):
            return False
        self._why = self._why or f"its sandbox is `{state_of(found)}`: {words(error)}"
        return True

    async def _learn_why(self) -> None:
        """How the driver ended, as far as Daytona still tells."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CALL_S):
                ended = await self._sandbox.process.get_session_command(NAME, self._command)
                if ended.exit_code is not None:
                    self._process_ended(int(ended.exit_code))


_: OpenSession = open_session
