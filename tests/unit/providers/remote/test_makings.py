"""Sandboxes that are being made: once a run, in the background when it takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreates


class Scene:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.made = asyncio.Event()
        self.makings = PendingCreates(self.told.append, give_up_s=5.0)

    async def work(self) -> str:
        await self.made.wait()
        return "sb-1"


def play(tale: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        await tale(Scene())

    asyncio.run(told())


def test_who_waits_gets_the_handle_and_nobody_else_is_told() -> None:
    async def tale(scene: Scene) -> None:
        making = scene.makings.begin("run-0", scene.work())
        scene.made.set()
        assert await scene.makings.handle(making) == "sb-1"
        assert (scene.told, "run-0" in scene.makings, len(scene.makings)) == ([], False, 0)

    play(tale)


def test_who_has_no_patience_left_is_told_when_it_is_through() -> None:
    async def tale(scene: Scene) -> None:
        making = scene.makings.begin("run-0", scene.work())
        assert await scene.makings.handle(making, patience=asyncio.sleep(0.01)) is None
        assert scene.makings.get("run-0") is making
        scene.made.set()
        while not scene.told:
            await asyncio.sleep(0)
        assert scene.told == ["run-0"]
        assert await scene.makings.handle(making, patience=asyncio.sleep(0.01)) == "sb-1"
        assert "run-0" not in scene.makings

    play(tale)


def test_an_error_goes_to_who_asks_next() -> None:
    async def tale(scene: Scene) -> None:
        async def refused() -> str:
            raise Refused("no such image")

        making = scene.makings.begin("run-0", refused())
        with pytest.raises(Refused, match="no such image"):
            await scene.makings.handle(making)
        assert "run-0" not in scene.makings

    play(tale)


def test_what_is_given_up_is_made_no_more_and_its_waiter_may_ask_again() -> None:
    async def tale(scene: Scene) -> None:
        making = scene.makings.begin("run-0", scene.work())
        waiting = asyncio.ensure_future(scene.makings.handle(making))
        await asyncio.sleep(0)
        await scene.makings.close()
        with pytest.raises(Unavailable, match="was given up"):
            await waiting
        assert making.task.cancelled()
        assert len(scene.makings) == 0

    play(tale)
