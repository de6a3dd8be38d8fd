"""A command in a pod whose input is written and output read."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fleetctl.common.errors import Unavailable
from fleetctl.providers.kubernetes.connection.pod_channel import STDOUT, PodChannel
from fleetctl.providers.remote.sandboxes import exec_channel


class PodExecChannel:
    def __init__(self, channel: PodChannel) -> None:
        self._channel = channel

    async def send(self, text: str) -> None:
        try:
            await self._channel.send(text.encode())
        except ConnectionError as error:
            raise Unavailable(f"the pod cannot be written to: {error}") from error

    async def pieces(self) -> AsyncGenerator[str, None]:
        async for stream, data in self._channel.frames():
            if stream == STDOUT:
                yield data.decode("ascii", "replace")
        if self._channel.exit_code is None:
            raise ConnectionError("the line to the pod broke")

    async def close(self) -> None:
        await self._channel.close()


_: type[exec_channel.ExecChannel] = PodExecChannel
