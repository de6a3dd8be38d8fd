"""The process that listens in a sandbox: clients on one side, the controller's line on the other.

Begun by keeper.py, which reports on `control` the run that may call; it ends with the supervisor.
"""

from __future__ import annotations

import asyncio
import socket

from fleetctl.guest.remote.relay.calls import Calls, RelayStream
from fleetctl.guest.remote.relay.client import Client
from fleetctl.guest.task.text import compact, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

ALIVE_S = 15.0  # between two messages on a line; the other end waits for them
BEGIN_S = 60.0  # until the run of a line has to begin; then the line may join again
# Bytes of the other end's line: a piece of an answer, encoded.
LINE_BYTES_MAX = 64 * 1024 * 1024


def serve(
    listener: int,
    joining: int,
    control: int,
) -> None:
    """Serves until `control` is at its end. All are descriptors of sockets."""
    asyncio.run(_serve(*(socket.socket(fileno=one) for one in (listener, joining, control))))


async def _serve(
    listener: socket.socket,
    joining: socket.socket,
    control: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    runs = Runs()
    clients = await loop.create_server(lambda: Client(runs.calls_of), sock=listener)
    lines = await asyncio.start_unix_server(runs.joined, sock=joining, limit=LINE_BYTES_MAX)
    reader, _ = await asyncio.open_unix_connection(sock=control)
    while line := await reader.readline():
        runs.obey(parse(line.decode()))
    for server in (clients, lines):
        server.close()


class Runs:
    """Maps each token to its run's calls. At most one run is under way at a time."""

    def __init__(self) -> None:
        self._run, self._token, self._ended = "", "", ""
        self._calls: Optional[Calls] = None
        self._changed = asyncio.Condition()
        self._telling: set[asyncio.Future[None]] = set()

    def calls_of(self, token: str) -> Optional[Calls]:
        if token and token == self._token:
            return self._calls
        return None

    def obey(self, message: dict[str, str]) -> None:
        if self._calls is not None:
            self._calls.end()
        if "over" in message:
            self._ended, self._run, self._token, self._calls = message["over"], "", "", None
        else:
            self._run, self._token = message["run"], message["token"]
            self._calls = Calls()
        telling = asyncio.ensure_future(self._tell_change())
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a line that has joined and names its run."""
        run = (await reader.readline()).decode().strip()
        calls = await self._begun(run)
        if calls is None:
            if run == self._ended:
                writer.write(compact({"e": "over"}).encode() + b"\n")
            writer.close()
            return
        line = RelayStream(writer)
        calls.join(line)
        alive = asyncio.ensure_future(_say_alive(line))
        try:
            while text := await reader.readline():
                calls.hear(line, _news(text))
        except (OSError, ValueError):
            pass  # closed, or not a message of the other end
        finally:
            alive.cancel()
            calls.part(line)
            line.close()

    async def _begun(self, run: str) -> Optional[Calls]:
        """Returns a run's calls, once it has begun; None when it has ended, or begins too late."""
        async with self._changed:
            try:
                known = self._changed.wait_for(lambda: run in (self._run, self._ended))
                await asyncio.wait_for(known, BEGIN_S)
            except asyncio.TimeoutError:
                return None
        if run == self._run:
            return self._calls
        return None

    async def _tell_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _say_alive(line: RelayStream) -> None:
    while True:
        line.tell(lambda: b'{"e":"alive"}\n')
        await asyncio.sleep(ALIVE_S)


def _news(text: bytes) -> dict[str, Any]:
    """Parses a message. Raises ValueError."""
    news = parse(text.decode())
    if not isinstance(news, dict):
        raise ValueError("a line that is not an object")
    return news
