"""What a callback is given, as a stream: whole, in order, and without a task that is left over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from fleetctl.providers.daytona.runs.daytona_streams import Put, read_ahead


def played(scene: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        await scene()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_every_piece_comes_in_order_until_the_reader_is_done(ahead: int) -> None:
    async def read(put: Put[int]) -> None:
        for number in range(10):
            await put(number)

    async def scene() -> None:
        assert [piece async for piece in read_ahead(read, ahead=ahead)] == list(range(10))

    played(scene)


def test_what_was_put_before_a_failure_comes_before_it() -> None:
    async def read(put: Put[str]) -> None:
        await put("said")
        raise ConnectionError("cut")

    async def scene() -> None:
        heard = []
        with pytest.raises(ConnectionError, match="cut"):
            async for piece in read_ahead(read, ahead=8):
                heard.append(piece)
        assert heard == ["said"]

    played(scene)


def test_a_reader_waits_for_who_takes_and_ends_with_him() -> None:
    put_so_far: list[int] = []

    async def read(put: Put[int]) -> None:
        for number in range(100):
            await put(number)
            put_so_far.append(number)

    async def scene() -> None:
        async with aclosing(read_ahead(read, ahead=2)) as stream:
            assert await anext(stream) == 0
            await asyncio.sleep(0.01)
            assert len(put_so_far) <= 4

    played(scene)


def test_who_stops_waiting_leaves_nothing_behind() -> None:
    async def read(put: Put[int]) -> None:
        await asyncio.Event().wait()

    async def take() -> None:
        async with aclosing(read_ahead(read, ahead=2)) as stream:
            await anext(stream)

    async def scene() -> None:
        taking = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait({taking})

    played(scene)
