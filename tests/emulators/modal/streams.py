"""Output that can be read again from any offset, and input that takes each byte once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

CHUNK_BYTES = 256 * 1024
MEMORY_BYTES_MAX = 64 * 1024 * 1024  # of one stream; a test that writes more means to


class Output:
    """What a process wrote to one descriptor. With `keep_bytes` only the end of it is kept."""

    def __init__(self, keep_bytes: int = MEMORY_BYTES_MAX) -> None:
        self.start = 0  # offset of the first byte that is kept
        self.marks: list[tuple[float, int]] = []  # (when, offset after it) per read
        self.closed = False
        self.write_end: int | None = None
        self._keep_bytes = keep_bytes
        self._data = bytearray()
        self._read_end = -1
        self._news = asyncio.Event()

    @property
    def end(self) -> int:
        return self.start + len(self._data)

    def open(self) -> int:
        """The descriptor to give to a process; `given` closes our copy of it."""
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        self.follow(self._read_end)
        return self.write_end

    def follow(self, descriptor: int) -> None:
        """Take what comes from this descriptor, which is ours from now on."""
        self._read_end = descriptor
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._on_readable)

    def given(self) -> None:
        if self.write_end is not None:
            os.close(self.write_end)
            self.write_end = None

    def close(self) -> None:
        """Takes what is already there, then ends."""
        if self._read_end >= 0:
            while self._read_end >= 0 and self._take():
                pass
        self._finish()

    def _on_readable(self) -> None:
        self._take()

    def _take(self) -> bool:
        try:
            data = os.read(self._read_end, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose other side has gone
            data = b""
        if not data:
            self._finish()
            return False
        self.feed(data)
        return True

    def feed(self, data: bytes) -> None:
        self._data += data
        excess = len(self._data) - self._keep_bytes
        if excess > 0:
            del self._data[:excess]
            self.start += excess
        self.marks.append((time.time(), self.end))
        self._wake()

    def _finish(self) -> None:
        if self._read_end >= 0:
            asyncio.get_running_loop().remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def since(self, offset: int) -> bytes:
        begin = max(offset - self.start, 0)
        return bytes(self._data[begin : begin + CHUNK_BYTES])

    async def read(self, offset: int) -> AsyncIterator[tuple[int, bytes]]:
        """(offset, data) from `offset`, or from the first byte kept, to the end of the stream.
        Never an empty piece: the SDK takes that for a broken server.
        """
        offset = max(offset, self.start)
        while True:
            while offset < self.end:
                offset = max(offset, self.start)
                data = self.since(offset)
                yield offset, data
                offset += len(data)
            if self.closed:
                return
            await self._news.wait()

    async def news(self, timeout_s: float) -> None:
        """Returns at more data, the end, or the timeout."""
        if self.closed:
            return
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return


class Input:
    """The write side of a process's stdin, addressed by byte offsets."""

    def __init__(self) -> None:
        self.written = 0
        self.closed = False
        self.read_end: int | None = None
        self._write_end = -1
        self._lock = asyncio.Lock()

    def open(self) -> int:
        self.read_end, self._write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write_end, False)
        return self.read_end

    def open_terminal(self, master: int) -> None:
        """Write to a terminal instead; its descriptor stays the caller's."""
        self._write_end = os.dup(master)
        os.set_blocking(self._write_end, False)

    def given(self) -> None:
        if self.read_end is not None:
            os.close(self.read_end)
            self.read_end = None

    async def write(self, offset: int, data: bytes, *, eof: bool = False) -> None:
        """A replay of bytes that were taken before is skipped. Raises ValueError for a gap, and
        BrokenPipeError when nobody reads any more.
        """
        async with self._lock:
            if offset > self.written:
                raise ValueError(f"stdin has {self.written} bytes; offset {offset} leaves a gap")
            fresh = memoryview(data)[self.written - offset :] if data else memoryview(b"")
            if fresh and self.closed:
                raise BrokenPipeError("stdin is closed")
            await self._put(fresh)
            if eof:
                self.close()

    def close(self) -> None:
        self.closed = True
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    async def _put(self, data: memoryview) -> None:
        while data:
            try:
                count = os.write(self._write_end, data)
            except BlockingIOError:
                await self._writable()
                continue
            self.written += count
            data = data[count:]

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(self._write_end, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_writer(self._write_end)
