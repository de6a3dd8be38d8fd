"""A command in a sandbox of Modal whose input is written and output read, through the SDK's own
exec.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from fleetctl.providers.modal.connection.modal_errors import (
    error_words,
    sandbox_call,
    sdk_errors,
)
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.exec_channel import WRITE_CHARACTERS

if TYPE_CHECKING:
    import modal


class ModalExecChannel:
    def __init__(
        self, process: modal.container_process.ContainerProcess[str], *, deadline_s: float
    ) -> None:
        """deadline_s: seconds for one call."""
        self._process = process
        self._deadline_s = deadline_s

    async def send(self, text: str) -> None:
        async with sandbox_call("the sandbox cannot be written to", deadline_s=self._deadline_s):
            for at in range(0, len(text), WRITE_CHARACTERS):
                self._process.stdin.write(text[at : at + WRITE_CHARACTERS])
                await self._process.stdin.drain.aio()

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            async for piece in self._process.stdout:
                yield piece
        except sdk_errors() as error:
            raise ConnectionError(error_words(error)) from error

    async def close(self) -> None:
        """Closes the input: at Modal a command ends only once it has read its input to the end."""
        async with sandbox_call("the sandbox cannot be written to", deadline_s=self._deadline_s):
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()


_: type[exec_channel.ExecChannel] = ModalExecChannel
