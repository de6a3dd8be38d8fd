"""Runs the body of a test that uses boxes, and programs in them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from tests.emulators.boxes import Box, nursery_here

HANG_S = 120  # turns a hang into a failure


def run(body: Coroutine[Any, Any, None]) -> None:
    async def whole() -> None:
        nursery = await nursery_here()
        try:
            await asyncio.wait_for(body, HANG_S)
        finally:
            nursery.stop()

    asyncio.run(whole())


async def output(box: Box, *argv: str, **options: Any) -> tuple[int, str]:
    told, tell = os.pipe()
    process = await box.spawn(argv, stdout=tell, stderr=tell, **options)
    os.close(tell)
    code = await process.wait()
    with os.fdopen(told, "rb") as stream:
        return code, stream.read().decode()
