"""The emulator's own HTTP/2, against the libraries that it stands for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, PingAckReceived, ResponseReceived, StreamEnded
from hpack import Decoder, Encoder
from hpack.struct import NeverIndexedHeaderTuple

from tests.emulators.modal.http2 import Answer, Link, Stream
from tests.emulators.modal.http2_headers import Reader, written

LARGE_BYTES = 11 * 1024 * 1024  # more than twice either side's window
REQUEST = [(":method", "POST"), (":path", "/echo"), (":scheme", "http"), (":authority", "here")]


def _run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    return run


def test_blocks_that_a_library_wrote_are_read_as_they_were_meant() -> None:
    draw = random.Random(7)
    encoder, reader = Encoder(), Reader()
    for number in range(200):
        headers = [(":path", f"/{number % 3}"), ("x-name", "ü" * draw.randrange(200))]
        headers += [(f"x-{draw.randrange(30)}", str(draw.random())) for _ in range(5)]
        if number % 50 == 0:
            encoder.header_table_size = draw.choice((0, 300, 4096))
        secret = NeverIndexedHeaderTuple("x-secret", "s" * draw.randrange(300))
        block = encoder.encode([*headers, secret], huffman=bool(number % 4))
        assert reader.read(block) == [*headers, tuple(secret)]


def test_blocks_that_are_written_can_be_read_by_a_library_in_any_order() -> None:
    headers = [(":status", "200"), ("a", ""), ("b", "x" * 126), ("c", "x" * 127), ("d", "é" * 9000)]
    decoder = Decoder()
    for _ in range(2):
        assert decoder.decode(written(headers)) == headers


@_run
async def test_more_than_the_windows_hold_goes_both_ways() -> None:
    body = random.Random(8).randbytes(LARGE_BYTES)
    async with _serving(_echo) as client:
        assert await client.ask([*REQUEST, ("x-long", "y" * 40_000)], body, padding=9) == body


@_run
async def test_requests_at_once_each_have_their_own_answer() -> None:
    bodies = [bytes([number]) * 70_000 for number in range(20)]
    async with _serving(_echo) as client:
        answers = await asyncio.gather(*(client.ask(REQUEST, body) for body in bodies))
    assert answers == bodies


@_run
async def test_a_reset_cancels_what_answers_and_the_connection_lives_on() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(stream: Stream) -> None:
        if ("x-wait", "1") not in stream.headers:
            return await _echo(stream)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with _serving(wait) as client:
        asking = asyncio.create_task(client.ask([*REQUEST, ("x-wait", "1")], b""))
        await begun.wait()
        client.reset(1)
        await cancelled.wait()
        assert await client.ask(REQUEST, b"next") == b"next"
        await client.ping()
        asking.cancel()


@_run
async def test_what_is_not_http2_is_sent_away() -> None:
    async with _listening(_echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(reader.read(), 10)  # ends
        writer.close()


async def _echo(stream: Stream) -> None:
    stream.send_headers(written([(":status", "200")]), last=False)
    while data := await stream.read(100_000):
        await stream.send(data)
    stream.send_headers(written([("x-end", "1")]), last=True)


class _Client(asyncio.Protocol):
    """One connection of the h2 library."""

    def __init__(self) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._changed = asyncio.Event()
        self._bodies: dict[int, bytearray] = {}
        self._ended: set[int] = set()
        self._pinged = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._h2.initiate_connection()
        self._send()

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, ResponseReceived):
                self._bodies[event.stream_id] = bytearray()
            elif isinstance(event, DataReceived):
                self._bodies[event.stream_id] += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                self._ended.add(event.stream_id)
            elif isinstance(event, PingAckReceived):
                self._pinged = True
        self._send()
        self._changed.set()

    async def ask(
        self, headers: list[tuple[str, str]], body: bytes, *, padding: int | None = None
    ) -> bytes:
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(number, headers)
        around = 0 if padding is None else padding + 1
        while body:
            room = self._h2.local_flow_control_window(number)
            size = min(room, self._h2.max_outbound_frame_size) - around
            if size <= 0:
                await self._change()
                continue
            self._h2.send_data(number, body[:size], pad_length=padding)
            body = body[size:]
            self._send()
        self._h2.end_stream(number)
        self._send()
        while number not in self._ended:
            await self._change()
        return bytes(self._bodies[number])

    def reset(self, number: int) -> None:
        self._h2.reset_stream(number)
        self._send()

    async def ping(self) -> None:
        self._h2.ping(b"12345678")
        self._send()
        while not self._pinged:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await asyncio.wait_for(self._changed.wait(), 30)

    def _send(self) -> None:
        self.transport.write(self._h2.data_to_send())


@asynccontextmanager
async def _listening(answer: Answer) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Link(answer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def _serving(answer: Answer) -> AsyncIterator[_Client]:
    async with _listening(answer) as port:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(_Client, "127.0.0.1", port)
        try:
            yield client
        finally:
            transport.close()
