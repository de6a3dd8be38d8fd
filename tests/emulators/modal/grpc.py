"""gRPC over http2.py: finds the handler of a request, and makes an answer of what becomes of it.

Statuses, errors, metadata, deadlines and the table of handlers are grpclib's; so is what callers
are told of a request that is none.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import weakref
from typing import Any

from grpclib import GRPCError, Status
from grpclib.const import Handler
from grpclib.metadata import (
    decode_metadata,
    decode_timeout,
    encode_bin_value,
    encode_grpc_message,
)
from modal._utils.grpc_utils import custom_detail_codec

from .calls import Service
from .http2 import Link, Stream
from .http2_headers import written

LOG = logging.getLogger(__name__)
PREFIX_BYTES = 5  # of a message: whether it is compressed, and its length
INTERNAL = (Status.UNKNOWN, "Internal Server Error", None)
OPENING = [(":status", "200"), ("content-type", "application/grpc+proto")]
OPEN = written(OPENING)
OK = written([("grpc-status", "0")])


class Call:
    """A request as its handler sees it."""

    def __init__(self, stream: Stream, handler: Handler) -> None:
        self.metadata = decode_metadata(stream.headers)
        self.answered = False
        self._stream, self._handler = stream, handler

    async def recv_message(self) -> Any:
        """None after the last one."""
        prefix = await self._stream.read(PREFIX_BYTES)
        if not prefix:
            return None
        size = int.from_bytes(prefix[1:], "big")
        data = await self._stream.read(size)
        if len(prefix) < PREFIX_BYTES or prefix[0] or len(data) < size:
            raise GRPCError(Status.INTERNAL, "a message is cut short, or compressed")
        return self._handler.request_type.FromString(data)

    async def send_message(self, message: Any) -> None:
        assert isinstance(message, self._handler.reply_type), type(message)
        if not self.answered:
            self._stream.send_headers(OPEN, last=False)
            self.answered = True
        data = message.SerializeToString()
        await self._stream.send(b"\0" + len(data).to_bytes(4, "big") + data)

    def cut(self) -> None:
        """Close the connection under it, without an answer."""
        self._stream.link.abort()

    def finish(self, status: Status, message: str | None, details: Any) -> None:
        if not self._stream.link.alive:
            return
        if (
            status is Status.OK
            and not self.answered
            and not self._handler.cardinality.server_streaming
        ):
            LOG.error("a handler gave no reply")
            status, message, details = INTERNAL
        told = [] if self.answered else list(OPENING)
        told.append(("grpc-status", str(status.value)))
        if message is not None:
            told.append(("grpc-message", encode_grpc_message(message)))
        if details is not None:
            data = encode_bin_value(custom_detail_codec.encode(status, message, details))
            told.append(("grpc-status-details-bin", data.decode()))
        plain = self.answered and status is Status.OK
        self._stream.send_headers(OK if plain else written(told), last=True)
        if status is not Status.OK and not self._stream.ended:
            self._stream.reset()


class Endpoint:
    """Owns a listening socket. Its connections can be cut from our side."""

    def __init__(self, service: Service) -> None:
        self._handlers = service.__mapping__()
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._linked, sock=listener, backlog=1024)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def cut(self) -> int:
        """Closes all connections without a word; returns how many there were."""
        alive = [link for link in self._links if link.alive]
        for link in alive:
            link.abort()
        return len(alive)

    def _linked(self) -> Link:
        link = Link(self._answer)
        self._links.add(link)
        return link

    async def _answer(self, stream: Stream) -> None:
        headers = dict(stream.headers)
        handler = self._handlers.get(headers.get(":path", ""))
        if refused := _refused(headers, handler):
            stream.send_headers(written(refused), last=True)
            return
        assert handler is not None
        call = Call(stream, handler)
        call.finish(*await _outcome(call, handler, headers.get("grpc-timeout")))


def _refused(headers: dict[str, str], handler: Handler | None) -> list[tuple[str, str]]:
    """What is answered to a request that no handler can have."""
    kind, _, encoding = headers.get("content-type", "").partition("+")
    if headers.get(":method") != "POST":
        return [(":status", "405")]
    if kind != "application/grpc" or encoding not in ("", "proto"):
        return [(":status", "415"), *_trailers(Status.UNKNOWN, "Unacceptable content-type header")]
    if headers.get("te") != "trailers":
        missing = 'Required "te: trailers" header is missing'
        return [(":status", "400"), *_trailers(Status.UNKNOWN, missing)]
    if handler is None:
        return [*OPENING, *_trailers(Status.UNIMPLEMENTED, "Method not found")]
    return []


def _trailers(status: Status, message: str) -> list[tuple[str, str]]:
    return [("grpc-status", str(status.value)), ("grpc-message", encode_grpc_message(message))]


async def _outcome(
    call: Call, handler: Handler, timeout: str | None
) -> tuple[Status, str | None, Any]:
    try:
        limit = asyncio.timeout(None if timeout is None else decode_timeout(timeout))
    except ValueError:
        return Status.UNKNOWN, "Invalid grpc-timeout header", None
    try:
        async with limit:
            await handler.func(call)
    except GRPCError as error:
        return error.status, error.message, error.details
    except Exception as error:  # of whatever kind: the caller is told, and the next is served
        if isinstance(error, TimeoutError) and limit.expired():
            return Status.DEADLINE_EXCEEDED, None, None
        LOG.exception("a handler failed")
        return INTERNAL
    return Status.OK, None, None
