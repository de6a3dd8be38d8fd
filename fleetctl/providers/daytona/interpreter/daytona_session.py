"""Sessions of interpreters on Daytona: a sandbox, and the driver as a command of a session in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox whose maker died
ends by its TTL.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.providers.contract.session import (
    DRIVER_COMMAND,
    EndSession,
    OpenSession,
    Session,
    SessionRequest,
)
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import is_not_found, retryable_call
from fleetctl.providers.daytona.interpreter import daytona_session_sandbox as making
from fleetctl.providers.daytona.interpreter.daytona_session_sandbox import CALL_S, DaytonaShared
from fleetctl.providers.daytona.runs import daytona_exec_channel
from fleetctl.providers.daytona.runs.daytona_endings import is_over, state_of
from fleetctl.providers.daytona.runs.sandbox_deletes import (
    discard_sandbox,
    end_by_name,
    end_sandbox,
)
from fleetctl.providers.remote.connection.throttle_errors import unless_throttled
from fleetctl.providers.remote.sandboxes.exec_channel import LineSplitter
from fleetctl.providers.remote.sandboxes.remote_session import RemoteSession

NAME = "driver"  # of the session in the sandbox
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # until a stream that dropped is opened again


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Raises Refused or Unavailable; then no sandbox is left."""
    making.refuse_what_is_not_ours(request)
    shared = making.shared_by(home)
    shared.join()
    try:
        sandbox = await unless_throttled(
            lambda: making.make_sandbox(home, shared, request), patience_s=making.START_S
        )
        try:
            workspace = await unless_throttled(
                lambda: making.prepare_session(home, sandbox, request), patience_s=making.START_S
            )
            command = await _start_driver(sandbox, workspace)
        except BaseException:
            await discard_sandbox(await shared.connection.client(), sandbox.id)
            raise
    except BaseException:
        await shared.leave()
        raise
    session = DaytonaSession(shared, sandbox, command, lifetime_s=request.lifetime_s)
    session.place_root = request.place.mount_path if request.place else ""
    session.workspace = workspace
    return session


async def end_session(home: Path, name: str, native: Mapping[str, str]) -> bool:
    """Ends a session, as contract/session.py describes."""
    shared = making.shared_by(home)
    shared.join()
    try:
        client = await shared.connection.client()
        return await unless_throttled(lambda: end_by_name(client, name), patience_s=CALL_S)
    finally:
        await shared.leave()


async def _start_driver(sandbox: sdk.AsyncSandbox, workspace: str) -> str:
    """The id of its command."""

    async def opened() -> None:
        async with retryable_call("the driver cannot be started", deadline_s=CALL_S):
            await sandbox.process.create_session(NAME)

    async def begun() -> str:
        async with retryable_call("the driver cannot be started", deadline_s=CALL_S):
            return await daytona_exec_channel.begin_command(
                sandbox, NAME, (*DRIVER_COMMAND, making.DRIVER), directory=workspace
            )

    await unless_throttled(opened, patience_s=CALL_S)
    return await unless_throttled(begun, patience_s=CALL_S)


class DaytonaSession(RemoteSession):
    def __init__(
        self,
        shared: DaytonaShared,
        sandbox: sdk.AsyncSandbox,
        command: str,
        *,
        lifetime_s: float,
    ) -> None:
        super().__init__(lifetime_s=lifetime_s)
        self._shared = shared
        self._sandbox = sandbox
        self._command = command
        self._talk = daytona_exec_channel.DaytonaExecChannel(
            sandbox,
            NAME,
            command,
            deadline_s=CALL_S,
            hear_error=self._hear_error,
        )

    async def send(self, line: str) -> None:
        await self._talk.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        again_s = AGAIN_S
        splitter = LineSplitter()
        while True:
            before = self._talk.heard
            try:
                async with contextlib.aclosing(self._talk.pieces()) as fresh:
                    async for piece in fresh:
                        for line in splitter.take(piece):
                            yield line
                break  # the command has ended
            except ConnectionError as error:
                if await self._is_over(error):
                    break
            again_s = AGAIN_S if self._talk.heard > before else min(2 * again_s, AGAIN_MAX_S)
            await asyncio.sleep(again_s)
        await self._learn_why()

    async def reload(self) -> None:
        """Volumes show what others wrote as soon as it is there."""

    async def _end_sandbox(self) -> None:
        await end_sandbox(await self._shared.connection.client(), self._sandbox, deadline_s=CALL_S)
        await self._shared.leave()

    async def _is_over(self, error: ConnectionError) -> bool:
        """Returns whether a stream broke because there is no more output."""
        client = await self._shared.connection.client()
        try:
            async with retryable_call("the sandbox cannot be looked up", deadline_s=CALL_S):
                found = await client.get(self._sandbox.id)
        except FleetctlError:
            return False  # still unknown; the next stream shows it
        except sdk.DaytonaNotFoundError as missing:
            if not is_not_found(missing):
                raise
            return True
        if not is_over(state_of(found)):
            return False
        self._why = self._why or f"its sandbox is `{state_of(found)}`: {error}"
        return True

    async def _learn_why(self) -> None:
        """Notes how the driver ended, as far as Daytona still reports it."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CALL_S):
                ended = await self._sandbox.process.get_session_command(NAME, self._command)
                if ended.exit_code is not None:
                    self._process_ended(int(ended.exit_code))


_: OpenSession = open_session
_end: EndSession = end_session
