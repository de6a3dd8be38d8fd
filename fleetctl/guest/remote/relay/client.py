"""Serves one client of the listener: sends its requests under the run whose token they carry, and
passes on the answers as they come. Used by process.py.
"""

from __future__ import annotations

import asyncio

from fleetctl.guest.remote.relay.calls import piece_of
from fleetctl.guest.remote.relay.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    Bad,
    Head,
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

    from fleetctl.guest.remote.relay.calls import Asked, Calls

    FindCalls = Callable[[str], Optional[Calls]]

TOLD_HEADERS = ("content-type", "accept")  # the token stays here: the other end has it
HOSTS = ("127.0.0.1", "localhost")


class Client(asyncio.StreamReaderProtocol):
    """One connection. calls_of: returns the calls of the run that has a token; None without one."""

    def __init__(self, calls_of: FindCalls) -> None:
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        super().__init__(reader, self._serve)
        self._calls_of = calls_of
        self._asked: Optional[Asked] = None  # whose answer the client waits for

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._leave()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        self._leave()
        super().eof_received()
        return False

    def _leave(self) -> None:
        if self._asked is not None:
            self._asked.news.put_nowait(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves a request; returns whether another one may follow."""
        head: Optional[Head] = None
        try:
            head = await read_head(reader)
            if head is None:
                return False
            _check_origin(head)
            calls = self._calls_of(head.token)
            if calls is None:
                raise Bad(401, "the token is of no task that runs")
            return await self._ask(calls, head, reader, writer)
        except Bad as bad:
            head = head or Head("GET", "/", "HTTP/1.1", {})
            head.stays = False  # the rest of the request was not read
            write_whole(
                writer,
                head,
                bad.status,
                {"Content-Type": "application/json"},
                bad.body,
            )
            return False

    async def _ask(
        self,
        calls: Calls,
        head: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        length = head.headers.get("content-length", "")
        size = min(int(length), BODY_BYTES_MAX) if length.isdecimal() else BODY_BYTES_MAX
        size = size if "transfer-encoding" in head.headers or length else 0
        async with calls.slots:
            await calls.room.take(size)
            try:
                body = await read_body(head, reader, writer)
                asked = self._asked = calls.ask(_fields(head), body)
                try:
                    if reader.at_eof():
                        self._leave()
                    return await _answer(asked, head, writer)
                finally:
                    self._asked = None
                    calls.leave(asked)
            finally:
                await calls.room.give(size)


def _check_origin(head: Head) -> None:
    """Refuses pages in a browser, also by a name that resolves to loopback. Raises Bad."""
    host = head.headers.get("host", "").rsplit(":", 1)[0]
    if head.headers.get("origin") or host not in HOSTS:
        raise Bad(403, "only tasks may ask here, by the loopback address")


def _fields(head: Head) -> dict[str, Any]:
    told = {name: head.headers[name] for name in TOLD_HEADERS if name in head.headers}
    headers = {**to_server(head.headers), **told}
    return {"method": head.method, "path": head.path, "headers": headers}


async def _answer(
    asked: Asked,
    head: Head,
    writer: asyncio.StreamWriter,
) -> bool:
    """Passes the answer on; returns whether the connection may carry another request."""
    begun = False
    while True:
        news = await asked.news.get()
        if news is None or news.get("broken"):
            return False  # only a cut connection shows a client that an answer is incomplete
        data = piece_of(news)
        ends = bool(news.get("end"))
        if not begun:
            begun = True
            status = int(news["status"])
            headers = dict(news["headers"])
            if ends:
                write_whole(
                    writer,
                    head,
                    status,
                    headers,
                    data,
                )
                return head.stays
            write_head(writer, head, status, headers)
        if data:
            write_piece(writer, head, data)
        if ends:
            write_piece(writer, head, b"")
            return head.stays
        await writer.drain()
