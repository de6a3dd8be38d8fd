"""Calls that are throttled: made again as it was told, and no longer than there is time."""

from __future__ import annotations

import asyncio

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.providers.remote.service_calls import unless_throttled


class Service:
    """Answers after it has thrown these."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    async def call(self) -> str:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return "made"


def limited(after_s: float) -> Unavailable:
    return Unavailable("too many", reason="RateLimited", retry_after_s=after_s)


def test_what_is_throttled_is_asked_for_again_after_the_time_that_was_told() -> None:
    async def scene() -> None:
        service, loop = Service(limited(0.2), limited(0.0)), asyncio.get_running_loop()
        began_s = loop.time()
        assert await unless_throttled(service.call, patience_s=3600.0) == "made"
        assert service.asked == 3
        assert loop.time() - began_s >= 0.3

    asyncio.run(scene())


def test_a_time_beyond_all_patience_is_not_waited_for() -> None:
    service = Service(limited(3600.0))
    with pytest.raises(Unavailable, match="too many"):
        asyncio.run(unless_throttled(service.call, patience_s=60.0))
    assert service.asked == 1


def test_what_is_not_throttled_is_told_at_once() -> None:
    service = Service(Unavailable("over its limit", reason="SpendLimit", retry_after_s=0.1))
    with pytest.raises(Unavailable, match="over its limit"):
        asyncio.run(unless_throttled(service.call, patience_s=60.0))
    assert service.asked == 1
