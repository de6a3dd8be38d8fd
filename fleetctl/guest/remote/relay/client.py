"""Serves one client of the listener: sends its requests as those of the run whose token they carry,
and passes on the answers piece by piece. Used by process.py.
"""

from __future__ import annotations

import asyncio

from fleetctl.guest.remote.relay.calls import decode_piece
from fleetctl.guest.remote.relay.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    ErrorReply,
    RequestHead,
    read_body,
    read_head,
    to_server,
    write_head,
    write_piece,
    write_whole,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleetctl.guest.remote.relay.calls import OpenRequest, OpenRequests

    FindRequests = Callable[[str], Optional[OpenRequests]]

FORWARDED_HEADERS = ("content-type", "accept")  # not the token, which the controller has
HOSTS = ("127.0.0.1", "localhost")


class Client(asyncio.StreamReaderProtocol):
    """A connection of a client. requests_of: returns the requests of the run that has a token; None
    without such a run.
    """

    def __init__(self, requests_of: FindRequests) -> None:
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        super().__init__(reader, self._serve)
        self._requests_of = requests_of
        self._request: Optional[OpenRequest] = None  # whose answer the client waits for

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._abandon_request()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        self._abandon_request()
        super().eof_received()
        return False

    def _abandon_request(self) -> None:
        if self._request is not None:
            self._request.messages.put_nowait(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_request(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Serves a request; returns whether another request may follow on this connection."""
        head: Optional[RequestHead] = None
        try:
            head = await read_head(reader)
            if head is None:
                return False
            _check_origin(head)
            requests = self._requests_of(head.token)
            if requests is None:
                raise ErrorReply(401, "the token is of no task that runs")
            return await self._ask(requests, head, reader, writer)
        except ErrorReply as error:
            head = head or RequestHead("GET", "/", "HTTP/1.1", {})
            head.keeps_alive = False  # the rest of the request was not read
            write_whole(
                writer,
                head,
                error.status,
                {"Content-Type": "application/json"},
                error.body,
            )
            return False

    async def _ask(
        self,
        requests: OpenRequests,
        head: RequestHead,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        length = head.headers.get("content-length", "")
        size = min(int(length), BODY_BYTES_MAX) if length.isdecimal() else BODY_BYTES_MAX
        size = size if "transfer-encoding" in head.headers or length else 0
        async with requests.slots:
            await requests.body_bytes.take(size)
            try:
                body = await read_body(head, reader, writer)
                request = self._request = requests.add_request(_request_fields(head), body)
                try:
                    if reader.at_eof():
                        self._abandon_request()
                    return await _pass_answer(request, head, writer)
                finally:
                    self._request = None
                    requests.drop_request(request)
            finally:
                await requests.body_bytes.give(size)


def _check_origin(head: RequestHead) -> None:
    """Refuses pages in a browser, also by a name that resolves to loopback. Raises ErrorReply."""
    host = head.headers.get("host", "").rsplit(":", 1)[0]
    if head.headers.get("origin") or host not in HOSTS:
        raise ErrorReply(403, "only tasks may ask here, by the loopback address")


def _request_fields(head: RequestHead) -> dict[str, Any]:
    forwarded = {name: head.headers[name] for name in FORWARDED_HEADERS if name in head.headers}
    headers = {**to_server(head.headers), **forwarded}
    return {"method": head.method, "path": head.path, "headers": headers}


async def _pass_answer(
    request: OpenRequest,
    head: RequestHead,
    writer: asyncio.StreamWriter,
) -> bool:
    """Passes the answer on; returns whether the connection may carry another request."""
    begun = False
    while True:
        message = await request.messages.get()
        if message is None or message.get("broken"):
            return False  # only a cut connection shows a client that an answer is incomplete
        data = decode_piece(message)
        ends = bool(message.get("end"))
        if not begun:
            begun = True
            status = int(message["status"])
            headers = dict(message["headers"])
            if ends:
                write_whole(
                    writer,
                    head,
                    status,
                    headers,
                    data,
                )
                return head.keeps_alive
            write_head(writer, head, status, headers)
        if data:
            write_piece(writer, head, data)
        if ends:
            write_piece(writer, head, b"")
            return head.keeps_alive
        await writer.drain()
