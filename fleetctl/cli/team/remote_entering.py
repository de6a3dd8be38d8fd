"""Enters a task's sandbox by way of a server: a command's streams over a websocket, with the
methods of a provider's own channel. So `exec`, `cp` and `port-forward` are the same with a server.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from fleetctl.cli.team.api_client import parse_error
from fleetctl.cli.team.server_fleet import ServerFleet
from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.remote import (
    EXEC_PATH,
    PIECE_BYTES,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW_BYTES,
    RemoteFleet,
)
from fleetctl.providers.contract.sandbox_access import Entering, ExecStreams, ExecTarget

if TYPE_CHECKING:
    from wsproto import WSConnection

CONNECT_S = 30.0


class RemoteEntering:
    """The channel into a run. node: of its machines."""

    def __init__(self, remote: RemoteFleet, run: str, node: int) -> None:
        assert isinstance(remote, ServerFleet)
        self._client = remote.client
        self._named: dict[str, object] = {"run": run, "node": node}
        found = self._show()
        self.terminal = found.get("terminal") is True
        self.binary = found.get("binary") is True

    def _show(self, **given: object) -> dict[str, Any]:
        _, body = self._client.get("exec-channel", **self._named, **given)
        found: dict[str, Any] = json.loads(body)
        return found

    async def link(self, place: ExecTarget, port: int) -> str:
        """Returns the provider's own link; an address of the server's machine is none of ours."""
        return str(self._show(port=port).get("link") or "")

    async def close(self) -> None:
        self._client.close()

    async def execute(
        self,
        place: ExecTarget,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> int:
        """Runs a command in a sandbox through the server; returns its exit code. Raises Unavailable
        where the connection breaks, and the errors of the server.
        """
        line = await ExecLine.open(self._client.url, self._client.headers, self._named)
        command = {
            "argv": list(argv),
            "stdin": streams.stdin is not None,
            "tty": None if streams.tty is None else list(streams.tty),
        }
        await line.send(json.dumps(command))
        senders = [asyncio.ensure_future(line.send_input(streams.stdin))] if streams.stdin else []
        if streams.sizes is not None:
            senders.append(asyncio.ensure_future(line.send_sizes(streams.sizes)))
        try:
            return await line.follow(streams)
        finally:
            for it in senders:
                it.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            line.close()


class ExecLine:
    """A websocket to the server, with one command."""

    def __init__(
        self,
        url: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        frames: WSConnection,
    ) -> None:
        self._url = url
        self._reader = reader
        self._writer = writer
        self._frames = frames
        self._room = asyncio.Condition()
        self._waiting = 0  # bytes of input that the command has not taken

    @classmethod
    async def open(cls, url: str, headers: dict[str, str], named: dict[str, object]) -> ExecLine:
        """Opens a websocket to the server. Raises Unavailable, and the refusal of the server."""
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import Request

        parts = urlsplit(url)
        secure = parts.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    parts.hostname,
                    parts.port or (443 if secure else 80),
                    ssl=ssl.create_default_context() if secure else None,
                )
        except (OSError, TimeoutError) as error:
            raise Unavailable(
                f"the server {url} does not answer: {error or 'no time left'}"
            ) from None
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line = cls(url, reader, writer, WSConnection(ConnectionType.CLIENT))
        target = f"{EXEC_PATH}?{urlencode(named)}"
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        request = Request(host=parts.netloc, target=target, extra_headers=given)
        writer.write(line._frames.send(request))
        try:
            await line._shake_hands()
        except BaseException:
            line.close()
            raise
        return line

    async def _shake_hands(self) -> None:
        from wsproto.events import AcceptConnection, RejectConnection, RejectData

        status = 0
        body = b""
        async for event in self._events():
            if isinstance(event, AcceptConnection):
                return
            if isinstance(event, RejectConnection):
                status = event.status_code
                if event.has_body:
                    continue
            elif isinstance(event, RejectData):
                body += event.data
                if not event.body_finished:
                    continue
            raise parse_error(status, body)
        raise parse_error(status, body) if status else self._cut()

    def _cut(self) -> Unavailable:
        return Unavailable(
            f"the line to the server {self._url} was cut; the command ends with it",
            hint="run it again; work that must outlive a line belongs into a task",
        )

    async def _events(self) -> AsyncIterator[Any]:
        """Yields what comes. It ends where the line does."""
        from wsproto.events import Ping
        from wsproto.utilities import RemoteProtocolError

        while True:
            # A list: the frames change while a caller waits.
            for event in list(self._frames.events()):
                if isinstance(event, Ping):
                    self._writer.write(self._frames.send(event.response()))
                else:
                    yield event
            try:
                data = await self._reader.read(PIECE_BYTES)
                if not data:
                    return
                self._frames.receive_data(data)
            except (OSError, RemoteProtocolError):
                return

    async def follow(self, streams: ExecStreams) -> int:
        """Returns the command's exit code. Raises the server's error, and Unavailable."""
        from wsproto.events import BytesMessage, CloseConnection, TextMessage

        texts = ""
        stream = -1
        async for event in self._events():
            if isinstance(event, BytesMessage):
                data = bytes(event.data)
                if stream < 0:
                    stream, data = data[0], data[1:]
                take = {STDOUT: streams.out, STDERR: streams.err}.get(stream)
                if take is not None and data:
                    take(data)
                stream = -1 if event.message_finished else stream
            elif isinstance(event, TextMessage):
                texts += event.data
                if event.message_finished:
                    found = json.loads(texts)
                    texts = ""
                    if "exit" in found:
                        return int(found["exit"])
                    if "error" in found:
                        raise parse_error(0, json.dumps(found["error"]).encode())
                    await self._note_taken(int(found.get("took", 0)))
            elif isinstance(event, CloseConnection):
                break
        raise self._cut()

    async def send(self, message: str | bytes) -> None:
        """Sends a message, when the line takes it."""
        from wsproto.events import Message

        data = (
            self._frames.send(Message[str](data=message))
            if isinstance(message, str)
            else self._frames.send(Message[bytes](data=message))
        )
        self._writer.write(data)
        with suppress(OSError):  # whoever follows the line learns of its end
            await self._writer.drain()

    async def send_input(self, pieces: AsyncIterator[bytes]) -> None:
        """Sends input as far as the command takes it, then its end."""
        async for data in pieces:
            for at in range(0, len(data), PIECE_BYTES):
                piece = data[at : at + PIECE_BYTES]
                async with self._room:
                    while self._waiting + len(piece) > WINDOW_BYTES:
                        await self._room.wait()
                    self._waiting += len(piece)
                await self.send(bytes((STDIN,)) + piece)
        await self.send(json.dumps({"eof": True}))

    async def send_sizes(self, sizes: AsyncIterator[tuple[int, int]]) -> None:
        async for size in sizes:
            await self.send(json.dumps({"size": list(size)}))

    async def _note_taken(self, count: int) -> None:
        async with self._room:
            self._waiting -= count
            self._room.notify_all()

    def close(self) -> None:
        with suppress(OSError, FleetctlError):
            self._writer.close()


_: type[Entering] = RemoteEntering
