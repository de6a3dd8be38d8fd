"""Sessions of interpreters on Modal: a sandbox that only waits, and the driver as a command in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox whose maker died
ends by its own timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import modal

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.session import (
    DRIVER_COMMAND,
    EndSession,
    OpenSession,
    Session,
    SessionRequest,
)
from fleetctl.providers.modal.connection.errors import reaching
from fleetctl.providers.modal.interpreter import sandbox as making
from fleetctl.providers.modal.interpreter.sandbox import CALL_S
from fleetctl.providers.modal.runs.talk import Talk
from fleetctl.providers.remote.connection.throttled import unless_throttled
from fleetctl.providers.remote.sandboxes.session import RemoteSession
from fleetctl.providers.remote.sandboxes.talk import Splitter

ENDING_S = 5.0  # for Modal to tell how a driver ended


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Raises Refused or Unavailable; then no sandbox is left."""
    if request.native.get("sandbox_spec") is not None:
        raise Refused(
            "`sandbox_spec` is an object of another provider, and this interpreter runs on `modal`",
            hint="use image, image_python_version and image_pip_packages",
        )
    sandbox, late = await unless_throttled(
        lambda: making.make(home, request), patience_s=making.START_S
    )
    try:
        workspace = await unless_throttled(
            lambda: making.prepare(sandbox, request), patience_s=making.START_S
        )
        async with reaching("the driver cannot be started", deadline_s=CALL_S):
            command = (*DRIVER_COMMAND, f"{making.DRIVER_DIR}/driver.py")
            process = await sandbox.exec.aio(
                *command, workdir=workspace or None, timeout=making.life_s(request)
            )
    except BaseException:
        await making.end(sandbox)
        raise
    session = ModalSession(sandbox, process, lifetime_s=request.lifetime_s)
    session.place_root = request.place.mount_path if request.place else ""
    session.workspace = workspace
    session.committed_late = late
    return session


async def end_session(home: Path, name: str, native: Mapping[str, str]) -> bool:
    """As contract/session.py says."""
    return await unless_throttled(
        lambda: making.end_named(home, name, native), patience_s=making.CALL_S
    )


class ModalSession(RemoteSession):
    def __init__(self, sandbox: modal.Sandbox, process: Any, *, lifetime_s: float) -> None:
        """process: the SDK's ContainerProcess that runs the driver."""
        super().__init__(lifetime_s=lifetime_s)
        self._sandbox = sandbox
        self._process = process
        self._talk = Talk(process, deadline_s=CALL_S)
        self._errors = asyncio.create_task(self._hear_errors())

    async def send(self, line: str) -> None:
        await self._talk.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        splitter = Splitter()
        try:
            async for piece in self._talk.pieces():
                for line in splitter.take(piece):
                    yield line
        except ConnectionError as error:
            self._why = f"its stream was lost: {error}"
        await self._learn_why()

    async def reload(self) -> None:
        async with reaching("the volumes cannot be reloaded", deadline_s=CALL_S):
            await self._sandbox.reload_volumes.aio()

    async def _end_sandbox(self) -> None:
        async with reaching("the sandbox cannot be ended", deadline_s=CALL_S):
            await self._sandbox.terminate.aio(wait=True)
        self._errors.cancel()

    async def _hear_errors(self) -> None:
        """The end of what the driver says on its standard error."""
        with contextlib.suppress(Exception):  # a lost stream is told by `lines`
            async for piece in self._process.stderr:
                self._hear_error(piece)

    async def _learn_why(self) -> None:
        """How the driver ended, as far as Modal tells soon."""
        with contextlib.suppress(TimeoutError, Exception):
            async with asyncio.timeout(ENDING_S):
                self._process_ended(await self._process.wait.aio())


_: OpenSession = open_session
_end: EndSession = end_session
