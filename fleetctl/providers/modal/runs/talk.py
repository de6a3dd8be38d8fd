"""A command in a sandbox of Modal that is written to and heard, through the SDK's own exec."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from fleetctl.providers.modal.connection.errors import is_of_the_sdk, reaching, words
from fleetctl.providers.remote.sandboxes import talk
from fleetctl.providers.remote.sandboxes.talk import WRITE_CHARACTERS

if TYPE_CHECKING:
    import modal


class Talk:
    def __init__(
        self, process: modal.container_process.ContainerProcess[str], *, deadline_s: float
    ) -> None:
        """deadline_s: of one call."""
        self._process = process
        self._deadline_s = deadline_s

    async def send(self, text: str) -> None:
        async with reaching("the sandbox cannot be written to", deadline_s=self._deadline_s):
            for at in range(0, len(text), WRITE_CHARACTERS):
                self._process.stdin.write(text[at : at + WRITE_CHARACTERS])
                await self._process.stdin.drain.aio()

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            async for piece in self._process.stdout:
                yield piece
        except Exception as error:
            if not is_of_the_sdk(error):
                raise
            raise ConnectionError(words(error)) from error

    async def close(self) -> None:
        """Nothing there ends a command but its own reading to the end."""
        async with reaching("the sandbox cannot be written to", deadline_s=self._deadline_s):
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()


_: type[talk.Talk] = Talk
