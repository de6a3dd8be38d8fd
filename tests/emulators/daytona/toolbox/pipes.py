"""Reading a descriptor as soon as it has bytes: pipes, FIFOs and the master side of a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK_BYTES = 64 * 1024


class Reader:
    """Owns `descriptor`; calls `on_data` with what comes, and sets `ended` at the end of it."""

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._on_data = on_data
        self.ended = asyncio.Event()
        os.set_blocking(descriptor, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._once)

    def drain(self) -> None:
        """Take what was written until now, without waiting for more."""
        while not self.ended.is_set() and self._once():
            pass

    def close(self) -> None:
        if not self.ended.is_set():
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self.ended.set()

    def _once(self) -> bool:
        try:
            data = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal without a process answers EIO instead of an end
        if not data:
            self.close()
            return False
        self._on_data(data)
        return True


async def write_all(descriptor: int, data: bytes) -> None:
    """Write to a non-blocking descriptor whose reader may be slow. Raises OSError without one."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            await asyncio.sleep(0.005)
