"""The emulated model server in a thread, for tests that drive the real command line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.emulators.llm.server import Model


@contextmanager
def running(model: Model) -> Iterator[Model]:
    """`model`, which answers at its `url` until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(model.start(), loop).result()
    try:
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(model.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
