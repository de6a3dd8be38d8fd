"""A server's side of HTTP/2 (RFC 9113), as far as gRPC needs it: frames, streams, flow control.

It stands for what real servers have in compiled code: with a general library in Python, a call cost
the emulator a millisecond, most of it spent here. What a request means is grpc.py's.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

from hpack.exceptions import HPACKError

from .http2_headers import Reader

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = struct.Struct(">BHBBL")  # length (in two parts), type, flags, stream
DATA, HEADERS, _PRIORITY, RESET, SETTINGS, _PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = 3, 4, 5  # names of settings
STREAMS_MAX = 100  # at once, of one connection; what grpclib allows, too
WINDOW_BYTES = 4 * 1024 * 1024  # of what is on its way to us, for each stream and for all
PLAIN_WINDOW_BYTES = 0xFFFF  # until something else is said
PROTOCOL_ERROR = 1
Answer = Callable[["Stream"], Awaitable[None]]


class Stream:
    """One request and its answer."""

    def __init__(self, link: Link, number: int, headers: list[tuple[str, str]]) -> None:
        self.link, self.number, self.headers = link, number, headers
        self.window = link.stream_window  # what may still be sent
        self.ended = False  # the request is all here
        self.task: asyncio.Task[None] | None = None
        self._body = bytearray()
        self._fresh = 0  # received, and not yet given back to the sender's window
        self._news: asyncio.Future[None] | None = None

    async def read(self, size: int) -> bytes:
        """So many bytes, or what there is at the end of the request."""
        while len(self._body) < size and not self.ended:
            self._give_back()
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        self._give_back()
        data = bytes(self._body[:size])
        del self._body[:size]
        return data

    async def send(self, data: bytes) -> None:
        link, rest = self.link, memoryview(data)
        while rest:
            size = min(len(rest), self.window, link.window, link.frame_bytes_max)
            if size > 0 and link.writable:
                link.write(DATA, 0, self.number, bytes(rest[:size]))
                self.window -= size
                link.window -= size
                rest = rest[size:]
            else:
                await link.room()

    def send_headers(self, block: bytes, *, last: bool) -> None:
        flags = END_HEADERS | (END_STREAM if last else 0)
        self.link.write(HEADERS, flags, self.number, block)

    def reset(self) -> None:
        """The rest of the request is of no interest."""
        self.link.write(RESET, 0, self.number, bytes(4))

    def take(self, data: bytes, *, windowed: int = 0, last: bool) -> None:
        """windowed: bytes of the sender's window that it took, with what surrounds the data."""
        self._body += data
        self._fresh += windowed
        self.ended = self.ended or last
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _give_back(self) -> None:
        if self._fresh >= WINDOW_BYTES // 4 and not self.ended:
            self.link.write(WINDOW, 0, self.number, self._fresh.to_bytes(4, "big"))
            self._fresh = 0


class Link(asyncio.Protocol):
    """One connection: `answer` is run for each request, as a task that ends with the connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._greeted = False
        self._headers = Reader()
        self._block: tuple[int, int, bytearray] | None = None  # headers that are to be continued
        self._streams: dict[int, Stream] = {}  # those that are not answered yet
        self._newest = 0  # number of a stream
        self._written: list[bytes] = []
        self._fresh = 0
        self._room: asyncio.Future[None] | None = None
        self.window = self.stream_window = PLAIN_WINDOW_BYTES
        self.frame_bytes_max = 1 << 14
        self.writable = True

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def write(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """All that is written in one turn of the event loop is sent together."""
        if not self._written:
            self._loop.call_soon(self._flush)
        size = len(payload)
        self._written.append(HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, number) + payload)

    async def room(self) -> None:
        """Returns when more may be sent, perhaps."""
        if self._room is None or self._room.done():
            self._room = self._loop.create_future()
        await asyncio.shield(self._room)

    # -- what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        ours = {MAX_STREAMS: STREAMS_MAX, INITIAL_WINDOW: WINDOW_BYTES}
        self.write(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *one) for one in ours.items()))
        more = WINDOW_BYTES - PLAIN_WINDOW_BYTES
        self.write(WINDOW, 0, 0, more.to_bytes(4, "big"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._greeted:
            if len(self._received) < len(PREFACE):
                return
            self._greeted = self._received.startswith(PREFACE)
            del self._received[: len(PREFACE)]
        try:
            if not self._greeted:
                raise ValueError("this is not HTTP/2")
            self._take_frames()
        except (ValueError, IndexError, struct.error, HPACKError):  # nothing more can be read
            self.write(GOAWAY, 0, 0, struct.pack(">LL", 0, PROTOCOL_ERROR))
            self._flush()
            if self._transport is not None:
                self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._make_room()

    # -- frames -------------------------------------------------------------------------------

    def _take_frames(self) -> None:
        received, at = self._received, 0
        while len(received) - at >= HEAD.size:
            high, low, kind, flags, number = HEAD.unpack_from(received, at)
            end = at + HEAD.size + (high << 16) + low
            if len(received) < end:
                break
            self._take(kind, flags, number & 0x7FFFFFFF, bytes(received[at + HEAD.size : end]))
            at = end
        del received[:at]

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            self._take_data(flags, number, payload)
        elif kind == HEADERS:
            block = _bare(payload, flags)[5 if flags & WITH_PRIORITY else 0 :]
            self._block = (number, flags, bytearray(block))
            self._take_headers(flags)
        elif kind == CONTINUATION and self._block is not None:
            self._block[2].extend(payload)
            self._take_headers(flags)
        elif kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == WINDOW:
            self._widen(number, int.from_bytes(payload, "big"))
        elif kind == PING and not flags & ACK:
            self.write(PING, ACK, 0, payload)
        elif kind == RESET and number in self._streams:
            task = self._streams.pop(number).task
            if task is not None:
                task.cancel()

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        self._fresh += len(payload)
        if self._fresh >= WINDOW_BYTES // 4:
            self.write(WINDOW, 0, 0, self._fresh.to_bytes(4, "big"))
            self._fresh = 0
        if number in self._streams:
            data, last = _bare(payload, flags), bool(flags & END_STREAM)
            self._streams[number].take(data, windowed=len(payload), last=last)

    def _take_headers(self, flags: int) -> None:
        if self._block is None or not flags & END_HEADERS:
            return
        (number, first, block), self._block = self._block, None
        headers, last = self._headers.read(bytes(block)), bool(first & END_STREAM)
        stream = self._streams.get(number)
        if stream is None and number > self._newest:
            self._newest = number
            stream = self._streams[number] = Stream(self, number, headers)
            stream.task = self._loop.create_task(self._run(stream))
        if stream is not None and last:
            stream.take(b"", last=True)

    def _take_settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HL", payload):
            if name == INITIAL_WINDOW:
                for stream in self._streams.values():
                    stream.window += value - self.stream_window
                self.stream_window = value
            elif name == MAX_FRAME:
                self.frame_bytes_max = value
        self.write(SETTINGS, ACK, 0, b"")
        self._make_room()

    def _widen(self, number: int, by: int) -> None:
        if number == 0:
            self.window += by
        elif number in self._streams:
            self._streams[number].window += by
        self._make_room()

    async def _run(self, stream: Stream) -> None:
        try:
            await self._answer(stream)
        finally:
            self._streams.pop(stream.number, None)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _flush(self) -> None:
        data = b"".join(self._written)
        self._written.clear()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _bare(payload: bytes, flags: int) -> bytes:
    """Without the padding."""
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
