"""Port forwarding as kubectl does it: SPDY/3.1 streams in a websocket.

A connection is two streams, for data and for errors, which say their port and a number that they
share. As much of SPDY is here as spdystream, which both ends of the real thing use, sends.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

TUNNEL = "SPDY/3.1+portforward.k8s.io"
SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
FIN = 1
READ_BYTES = 32 * 1024
_HEAD = struct.Struct(">II")


_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base"
    " content-encoding content-language content-length content-location content-md5"
    " content-range content-type date etag expect expires from host if-match if-modified-since"
    " if-none-match if-range if-unmodified-since last-modified location max-forwards pragma"
    " proxy-authenticate proxy-authorization range referer retry-after server te trailer"
    " transfer-encoding upgrade user-agent vary via warning www-authenticate method get status"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401"
    " Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503"
    " Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue,"
    " Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    """That of the SPDY/3 draft, with which headers are compressed."""
    names = [*_NAMES.split(), "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie"]
    names += ["keep-alive", "origin"]
    told = b"".join(struct.pack(">I", len(it)) + it.encode() for it in names)
    return told + _TEXT.encode()


DICTIONARY = _dictionary()
assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2  # what the draft says of it


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Pods have this machine's network. Raises OSError."""
    return await asyncio.open_connection("127.0.0.1", port)


def refused(port: int, pod: str, error: OSError) -> str:
    return (
        f"error forwarding port {port} to pod {pod}, uid : failed to execute portforward in network"
        f" namespace: failed to connect to localhost:{port} inside namespace: {error.strerror}"
    )


@dataclass(slots=True)
class _Pair:
    port: int
    streams: dict[str, int] = field(default_factory=dict)  # data and error
    writer: asyncio.StreamWriter | None = None


class Tunnel:
    def __init__(self, socket: web.WebSocketResponse, pod: str) -> None:
        self._socket, self._pod = socket, pod
        self._read = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._pairs: dict[str, _Pair] = {}
        self._by_stream: dict[int, _Pair] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        try:
            async for message in self._socket:
                if message.type == WSMsgType.BINARY:
                    self._read += message.data
                    await self._frames()
        finally:
            for task in self._tasks:
                task.cancel()
            for pair in self._pairs.values():
                if pair.writer is not None:
                    pair.writer.close()

    async def _frames(self) -> None:
        while len(self._read) >= _HEAD.size:
            first, second = _HEAD.unpack_from(self._read)
            end = _HEAD.size + (second & 0xFFFFFF)
            if len(self._read) < end:
                return
            body = bytes(self._read[_HEAD.size : end])
            del self._read[:end]
            if first >> 31:
                await self._control(first & 0xFFFF, body)
            else:
                await self._data(first, body, over=bool(second >> 24 & FIN))

    async def _control(self, kind: int, body: bytes) -> None:
        if kind == SYN_STREAM:
            number = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF
            await self._begun(number, self._headers(body[10:]))
        elif kind == PING:
            await self._send_control(PING, body)
        elif kind == RST_STREAM:
            pair = self._by_stream.get(struct.unpack_from(">I", body)[0] & 0x7FFFFFFF)
            if pair is not None and pair.writer is not None:
                pair.writer.close()
        elif kind == GOAWAY:
            await self._socket.close()

    def _headers(self, data: bytes) -> dict[str, str]:
        plain, found, at = self._inflate.decompress(data), {}, 4
        for _ in range(struct.unpack_from(">I", plain)[0]):
            words = []
            for _part in range(2):
                (size,) = struct.unpack_from(">I", plain, at)
                words.append(plain[at + 4 : at + 4 + size].decode())
                at += 4 + size
            found[words[0].lower()] = words[1]
        return found

    async def _begun(self, number: int, headers: dict[str, str]) -> None:
        none = self._deflate.compress(struct.pack(">I", 0))
        none += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._send_control(SYN_REPLY, struct.pack(">I", number) + none)
        pair = self._pairs.setdefault(headers["requestid"], _Pair(int(headers["port"])))
        pair.streams[headers["streamtype"]] = number
        self._by_stream[number] = pair
        if headers["streamtype"] == "data":
            await self._connect(pair)

    async def _connect(self, pair: _Pair) -> None:
        data, error = pair.streams["data"], pair.streams["error"]
        try:
            reader, pair.writer = await connected(pair.port)
        except OSError as problem:
            await self._send(error, refused(pair.port, self._pod, problem).encode())
            await self._send(error, b"", over=True)
            await self._send(data, b"", over=True)
            return
        task = asyncio.ensure_future(self._pump(reader, data, error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, data: int, error: int) -> None:
        with suppress(ConnectionError):
            while part := await reader.read(READ_BYTES):
                await self._send(data, part)
            await self._send(data, b"", over=True)
            await self._send(error, b"", over=True)

    async def _data(self, number: int, body: bytes, *, over: bool) -> None:
        pair = self._by_stream.get(number)
        if pair is None or pair.writer is None or number != pair.streams.get("data"):
            return
        with suppress(ConnectionError, OSError):
            if body:
                pair.writer.write(body)
                await pair.writer.drain()
            if over:
                pair.writer.write_eof()

    async def _send(self, number: int, body: bytes, *, over: bool = False) -> None:
        head = _HEAD.pack(number, (FIN << 24 if over else 0) | len(body))
        await self._socket.send_bytes(head + body)

    async def _send_control(self, kind: int, body: bytes) -> None:
        await self._socket.send_bytes(_HEAD.pack(0x80030000 | kind, len(body)) + body)
