"""Sessions of interpreters on Daytona: a sandbox, and the driver as a command of a session in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox whose maker died
ends by its TTL.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import daytona

from fleetctl.common.errors import FleetctlError
from fleetctl.providers.contract.session import (
    DRIVER_COMMAND,
    EndSession,
    OpenSession,
    Session,
    SessionRequest,
)
from fleetctl.providers.daytona.connection.errors import asking, is_not_found
from fleetctl.providers.daytona.interpreter import sandbox as making
from fleetctl.providers.daytona.interpreter.sandbox import CALL_S, Shared
from fleetctl.providers.daytona.runs import talk
from fleetctl.providers.daytona.runs.deletes import discard, end, found_and_ended
from fleetctl.providers.daytona.runs.endings import is_over, state_of
from fleetctl.providers.remote.connection.throttled import unless_throttled
from fleetctl.providers.remote.sandboxes.session import RemoteSession
from fleetctl.providers.remote.sandboxes.talk import Splitter

NAME = "driver"  # of the session in the sandbox
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


async def end_session(home: Path, name: str, native: Mapping[str, str]) -> bool:  # noqa: ARG001
    """As contract/session.py says."""
    shared = making.shared_by(home)
    shared.join()
    try:
        client = await shared.connection.client()
        return await unless_throttled(lambda: found_and_ended(client, name), patience_s=CALL_S)
    finally:
        await shared.leave()


async def _start_driver(sandbox: daytona.AsyncSandbox, workspace: str) -> str:
    """The id of its command."""

    async def opened() -> None:
        async with asking("the driver cannot be started", deadline_s=CALL_S):
            await sandbox.process.create_session(NAME)

    async def begun() -> str:
        async with asking("the driver cannot be started", deadline_s=CALL_S):
            return await talk.begin(
                sandbox, NAME, (*DRIVER_COMMAND, making.DRIVER), directory=workspace
            )

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
        self._talk = talk.Talk(
            sandbox, NAME, command, deadline_s=CALL_S, hear_error=self._hear_error
        )

    async def send(self, line: str) -> None:
        await self._talk.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        again_s, splitter = AGAIN_S, Splitter()
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
        await end(await self._shared.connection.client(), self._sandbox, deadline_s=CALL_S)
        await self._shared.leave()

    async def _is_over(self, error: ConnectionError) -> bool:
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
        self._why = self._why or f"its sandbox is `{state_of(found)}`: {error}"
        return True

    async def _learn_why(self) -> None:
        """How the driver ended, as far as Daytona still tells."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CALL_S):
                ended = await self._sandbox.process.get_session_command(NAME, self._command)
                if ended.exit_code is not None:
                    self._process_ended(int(ended.exit_code))


_: OpenSession = open_session
_end: EndSession = end_session
