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
from fleetctl.providers.modal.connection.modal_errors import sandbox_call
from fleetctl.providers.modal.interpreter import modal_session_sandbox as making
from fleetctl.providers.modal.interpreter.modal_session_sandbox import CALL_S
from fleetctl.providers.modal.runs.modal_exec_channel import ModalExecChannel
from fleetctl.providers.remote.connection.throttle_errors import unless_throttled
from fleetctl.providers.remote.sandboxes.exec_channel import LineSplitter
from fleetctl.providers.remote.sandboxes.remote_session import RemoteSession

ENDING_S = 5.0  # for Modal to report how a driver ended


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Raises Refused or Unavailable; then no sandbox is left."""
    if request.native.get("sandbox_spec") is not None:
        raise Refused(
            "`sandbox_spec` is an object of another provider, and this interpreter runs on `modal`",
            hint="use image, image_python_version and image_pip_packages",
        )
    sandbox, late = await unless_throttled(
        lambda: making.make_sandbox(home, request), patience_s=making.START_S
    )
    try:
        workspace = await unless_throttled(
            lambda: making.prepare_session(sandbox, request), patience_s=making.START_S
        )
        async with sandbox_call("the driver cannot be started", deadline_s=CALL_S):
            command = (*DRIVER_COMMAND, f"{making.DRIVER_DIR}/driver.py")
            process = await sandbox.exec.aio(
                *command, workdir=workspace or None, timeout=making.life_s(request)
            )
    except BaseException:
        await making.end_sandbox(sandbox)
        raise
    session = ModalSession(sandbox, process, lifetime_s=request.lifetime_s)
    session.place_root = request.place.mount_path if request.place else ""
    session.workspace = workspace
    session.committed_late = late
    return session


async def end_session(
    home: Path,
    name: str,
    native: Mapping[str, str],
) -> bool:
    """Ends a session, as contract/session.py describes."""
    return await unless_throttled(
        lambda: making.end_named(home, name, native), patience_s=making.CALL_S
    )


class ModalSession(RemoteSession):
    def __init__(
        self,
        sandbox: modal.Sandbox,
        process: Any,
        *,
        lifetime_s: float,
    ) -> None:
        """process: the SDK's ContainerProcess that runs the driver."""
        super().__init__(lifetime_s=lifetime_s)
        self._sandbox = sandbox
        self._process = process
        self._talk = ModalExecChannel(process, deadline_s=CALL_S)
        self._errors = asyncio.create_task(self._hear_errors())

    async def send(self, line: str) -> None:
        await self._talk.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        splitter = LineSplitter()
        try:
            async for piece in self._talk.pieces():
                for line in splitter.take(piece):
                    yield line
        except ConnectionError as error:
            self._why = f"its stream was lost: {error}"
        await self._learn_why()

    async def reload(self) -> None:
        async with sandbox_call("the volumes cannot be reloaded", deadline_s=CALL_S):
            await self._sandbox.reload_volumes.aio()

    async def _end_sandbox(self) -> None:
        async with sandbox_call("the sandbox cannot be ended", deadline_s=CALL_S):
            await self._sandbox.terminate.aio(wait=True)
        self._errors.cancel()

    async def _hear_errors(self) -> None:
        """Keeps the end of the driver's standard error."""
        with contextlib.suppress(Exception):  # a lost stream is reported by `lines`
            async for piece in self._process.stderr:
                self._hear_error(piece)

    async def _learn_why(self) -> None:
        """Notes how the driver ended, as far as Modal reports it soon."""
        with contextlib.suppress(TimeoutError, Exception):
            async with asyncio.timeout(ENDING_S):
                self._process_ended(await self._process.wait.aio())


_: OpenSession = open_session
_end: EndSession = end_session
