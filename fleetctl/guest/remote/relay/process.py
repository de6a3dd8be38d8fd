"""Connects the clients of a sandbox's listener with the controller's line, as a process of its own.

Begun by keeper.py, which reports on `control` the run that may call; it ends with the supervisor.
"""

from __future__ import annotations

import asyncio
import socket

from fleetctl.guest.remote.relay.calls import OpenRequests, RelayStream
from fleetctl.guest.remote.relay.client import Client
from fleetctl.guest.task.text import encode_compact, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

ALIVE_S = 15.0  # between two messages on a line; the other end waits for them
BEGIN_S = 60.0  # until the run of a line has to begin; then the line may join again
# Bytes of the other end's line: a piece of an answer, encoded.
LINE_BYTES_MAX = 64 * 1024 * 1024


def serve_relay(
    listener: int,
    joining: int,
    control: int,
) -> None:
    """Serves until `control` is at its end. The parameters are descriptors of sockets."""
    asyncio.run(
        _serve_sockets(*(socket.socket(fileno=one) for one in (listener, joining, control)))
    )


async def _serve_sockets(
    listener: socket.socket,
    joining: socket.socket,
    control: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    runs = RelayRuns()
    clients = await loop.create_server(lambda: Client(runs.requests_of), sock=listener)
    lines = await asyncio.start_unix_server(runs.serve_line, sock=joining, limit=LINE_BYTES_MAX)
    reader, _ = await asyncio.open_unix_connection(sock=control)
    while line := await reader.readline():
        runs.change_run(parse_json(line.decode()))
    for server in (clients, lines):
        server.close()


class RelayRuns:
    """Maps a token to the requests of its run. At most one run is under way at a time."""

    def __init__(self) -> None:
        self._run, self._token, self._ended = "", "", ""
        self._requests: Optional[OpenRequests] = None
        self._changed = asyncio.Condition()
        self._notifying: set[asyncio.Future[None]] = set()

    def requests_of(self, token: str) -> Optional[OpenRequests]:
        if token and token == self._token:
            return self._requests
        return None

    def change_run(self, message: dict[str, str]) -> None:
        if self._requests is not None:
            self._requests.end()
        if "over" in message:
            self._ended, self._run, self._token, self._requests = message["over"], "", "", None
        else:
            self._run, self._token = message["run"], message["token"]
            self._requests = OpenRequests()
        notifying = asyncio.ensure_future(self._notify_change())
        self._notifying.add(notifying)
        notifying.add_done_callback(self._notifying.discard)

    async def serve_line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a line that has joined and names its run."""
        run = (await reader.readline()).decode().strip()
        requests = await self._wait_for_run(run)
        if requests is None:
            if run == self._ended:
                writer.write(encode_compact({"e": "over"}).encode() + b"\n")
            writer.close()
            return
        line = RelayStream(writer)
        requests.attach_line(line)
        alive = asyncio.ensure_future(_send_alive(line))
        try:
            while text := await reader.readline():
                requests.receive(line, _parse_message(text))
        except (OSError, ValueError):
            pass  # closed, or not a message of the other end
        finally:
            alive.cancel()
            requests.detach_line(line)
            line.close()

    async def _wait_for_run(self, run: str) -> Optional[OpenRequests]:
        """Returns the requests of a run, once it has begun; None when it has ended, or does not
        begin within BEGIN_S.
        """
        async with self._changed:
            try:
                known = self._changed.wait_for(lambda: run in (self._run, self._ended))
                await asyncio.wait_for(known, BEGIN_S)
            except asyncio.TimeoutError:
                return None
        if run == self._run:
            return self._requests
        return None

    async def _notify_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _send_alive(line: RelayStream) -> None:
    while True:
        line.send(lambda: b'{"e":"alive"}\n')
        await asyncio.sleep(ALIVE_S)


def _parse_message(text: bytes) -> dict[str, Any]:
    """Parses a message. Raises ValueError."""
    message = parse_json(text.decode())
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message
