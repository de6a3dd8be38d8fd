"""Sessions of interpreters on Modal: a sandbox that only waits, and the driver as a command in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox whose maker died
ends by its own timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import modal

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.providers.contract.session import DRIVER_COMMAND, OpenSession, Session, SessionRequest
from fleetctl.providers.modal.connection.errors import is_of_the_sdk, words
from fleetctl.providers.modal.interpreter import sandbox as making
from fleetctl.providers.modal.interpreter.sandbox import CALL_S, LAST_WORDS_CHARACTERS, reaching
from fleetctl.providers.remote.connection.throttled import unless_throttled

WRITE_CHARACTERS = 1 << 20  # the SDK takes 2 MiB at once
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


class ModalSession:
    place_root = ""
    workspace = ""
    committed_late = ""

    def __init__(self, sandbox: modal.Sandbox, process: Any, *, lifetime_s: float) -> None:
        """process: the SDK's ContainerProcess that runs the driver."""
        self._sandbox = sandbox
        self._process = process
        self._words = ""
        self._why = ""
        self._errors = asyncio.create_task(self._hear_errors())
        self._age = asyncio.create_task(self._end_after(lifetime_s))
        self._stopping: asyncio.Task[None] | None = None

    async def send(self, line: str) -> None:
        text = line + "\n"
        async with reaching("the sandbox cannot be written to", deadline_s=CALL_S):
            for at in range(0, len(text), WRITE_CHARACTERS):
                self._process.stdin.write(text[at : at + WRITE_CHARACTERS])
                await self._process.stdin.drain.aio()

    async def lines(self) -> AsyncIterator[str]:
        left = ""
        try:
            async for piece in self._process.stdout:
                *whole, left = (left + piece).split("\n")
                for line in whole:
                    if line.strip():
                        yield line.strip()
        except Exception as error:
            if not is_of_the_sdk(error):
                raise
            self._why = f"its stream was lost: {words(error)}"
        await self._learn_why()

    def ending(self) -> str:
        why = self._why or "its sandbox ended"
        return f"{why}; its last words: {self._words}" if self._words else why

    async def reload(self) -> None:
        async with reaching("the volumes cannot be reloaded", deadline_s=CALL_S):
            await self._sandbox.reload_volumes.aio()

    async def stop(self) -> None:
        if self._stopping is None or (self._stopping.done() and self._stopping.exception()):
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        async with reaching("the sandbox cannot be ended", deadline_s=CALL_S):
            await self._sandbox.terminate.aio(wait=True)
        self._errors.cancel()
        if self._age is not asyncio.current_task():
            self._age.cancel()

    async def _end_after(self, lifetime_s: float) -> None:
        """Modal's own limit counts from the first moment of the sandbox and leaves room for that;
        this one counts from the driver's.
        """
        await asyncio.sleep(lifetime_s)
        self._why = f"its lifetime of {lifetime_s:g} s was over"
        with contextlib.suppress(FleetctlError):  # then Modal ends it a little later
            await self._stop()

    async def _hear_errors(self) -> None:
        """The end of what the driver says on its standard error."""
        with contextlib.suppress(Exception):  # a lost stream is told by `lines`
            async for piece in self._process.stderr:
                self._words = " ".join((self._words + piece).split())[-LAST_WORDS_CHARACTERS:]

    async def _learn_why(self) -> None:
        """How the driver ended, as far as Modal tells soon."""
        with contextlib.suppress(TimeoutError, Exception):
            async with asyncio.timeout(ENDING_S):
                code = await self._process.wait.aio()
                ended = f"was ended by signal {code - 128}" if code > 128 else ""
                self._why = self._why or f"its process {ended or f'ended with exit code {code}'}"


_: OpenSession = open_session
