"""Tasks that are cancelled end, also where a library takes the cancellation for its own failure."""

from __future__ import annotations

import asyncio

import pytest

from fleetctl.common import event_loop
from fleetctl.common.event_loop import cancel_tasks


async def test_who_swallows_a_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "AGAIN_S", 0.01)
    swallowed = 0

    async def call_of_an_sdk() -> None:
        nonlocal swallowed
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            swallowed += 1
            if swallowed > 2:
                raise
            raise ConnectionError("the call was interrupted") from None

    async def looks_again_and_again() -> None:
        while True:
            try:
                await call_of_an_sdk()
            except ConnectionError:
                continue

    looking = asyncio.ensure_future(looks_again_and_again())
    await asyncio.sleep(0)
    await cancel_tasks([looking])
    assert looking.cancelled()
    assert swallowed == 3


async def test_tasks_that_are_over_or_fail_on_the_way_are_taken_as_they_are() -> None:
    async def fails() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise ValueError("as it ends")

    over = asyncio.ensure_future(asyncio.sleep(0))
    await over
    failing = asyncio.ensure_future(fails())
    await asyncio.sleep(0)
    await cancel_tasks([over, failing])
    assert isinstance(failing.exception(), ValueError)
    await cancel_tasks([])
