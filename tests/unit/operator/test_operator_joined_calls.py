"""Calls that wait at the same time are one, and each item has its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fleetctl.operator.mirror.applier import JoinedCalls


class Counted:
    """A function that refuses every batch with a negative number."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.joined = JoinedCalls(self.call, items_max=4)

    async def call(self, items: Sequence[int]) -> None:
        self.batches.append(list(items))
        await asyncio.sleep(0)
        for item in items:
            if item < 0:
                raise ValueError(str(item))

    async def handle_all(self, *items: int) -> list[BaseException | None]:
        return await asyncio.gather(*map(self.joined.handle, items), return_exceptions=True)


def test_items_that_wait_together_are_one_call_up_to_the_limit() -> None:
    one = Counted()
    assert asyncio.run(one.handle_all(*range(6))) == [None] * 6
    assert one.batches == [[0, 1, 2, 3], [4, 5]]


def test_an_item_that_is_refused_learns_why_and_stops_no_other() -> None:
    one = Counted()
    first, wrong, last = asyncio.run(one.handle_all(1, -2, 3))
    assert (first, str(wrong), last) == (None, "-2", None)
    assert one.batches == [[1, -2, 3], [1], [-2], [3]]


def test_an_item_whose_caller_is_gone_is_left_out() -> None:
    one = Counted()

    async def play() -> None:
        gone, stays = (asyncio.ensure_future(one.joined.handle(it)) for it in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert await one.handle_all(3) == [None]

    asyncio.run(play())
    assert [it for batch in one.batches for it in batch] == [2, 3]
