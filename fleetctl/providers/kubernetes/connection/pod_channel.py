"""A command in a pod: its streams over one websocket, each message of which begins with the number
of its stream. Called by job_sandboxes.py, pod_streams.py and kubernetes_exec.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink

if TYPE_CHECKING:
    import aiohttp

# Only the newer one can end a command's input; every server since 1.30 has it.
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN = 0
STDOUT = 1
STDERR = 2
ERROR = 3
RESIZE = 4
CLOSE = 255
SEND_BYTES = 512 * 1024  # of a single message


class PodChannel:
    """A command's streams over a websocket. exit_code: the command's exit code, once all its frames
    are read; None if the connection broke before.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.exit_code: int | None = None
        self.failure = ""  # why it could not be started, in the server's words

    @property
    def can_end_input(self) -> bool:
        return self._socket.protocol == PROTOCOLS[0]

    async def send(self, data: bytes, stream: int = STDIN) -> None:
        """Sends data. Raises ConnectionError when the other end takes no more."""
        view = memoryview(data)
        try:
            while view:
                await self._socket.send_bytes(bytes([stream]) + view[:SEND_BYTES])
                view = view[SEND_BYTES:]
        except (ConnectionError, RuntimeError) as error:
            raise ConnectionError("the command takes no input any more") from error

    async def end_input(self) -> None:
        if self.can_end_input:
            await self.send(bytes([STDIN]), CLOSE)

    async def resize(self, rows: int, columns: int) -> None:
        await self.send(json.dumps({"Width": columns, "Height": rows}).encode(), RESIZE)

    async def frames(self) -> AsyncIterator[tuple[int, bytes]]:
        """Returns (stream, bytes), until the command ends or the line breaks. Raises
        ConnectionError.
        """
        import aiohttp

        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.ERROR:
                raise ConnectionError(str(message.data))
            data = message.data if isinstance(message.data, bytes) else message.data.encode()
            if not data:
                continue
            stream = data[0]
            if stream == ERROR:
                self._receive_end(data[1:])
            elif stream in (STDOUT, STDERR) and len(data) > 1:
                yield stream, data[1:]

    async def close(self) -> None:
        await self._socket.close()

    def _receive_end(self, data: bytes) -> None:
        """Notes a Status: the end of the command itself, or the reason why it did not start."""
        try:
            status: Object = json.loads(data)
        except ValueError:
            self.failure = data.decode("utf-8", "replace")
            return
        self.exit_code, self.failure = ending_of(status)


def ending_of(status: Object) -> tuple[int | None, str]:
    """Returns (exit code, "") for a command that ran, (None, reason) for a command that could not
    be started.
    """
    if status.get("status") == "Success":
        return 0, ""
    causes = (status.get("details") or {}).get("causes") or ()
    for cause in causes:
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(cause["message"]), ""
    return None, str(status.get("message") or "the command could not be started")


async def run(
    link: ClusterLink,
    pod: str,
    argv: Sequence[str],
    *,
    container: str,
    stdin: bool = False,
    tty: bool = False,
) -> PodChannel:
    """Begins a command. Raises what Connection.websocket raises."""
    words = [("command", word) for word in argv]
    flags = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query = [*words, ("container", container)]
    query += [(name, "true" if value else "false") for name, value in flags.items()]
    socket = await link.api.websocket(link.path("pods", pod, "exec"), urlencode(query), PROTOCOLS)
    return PodChannel(socket)
