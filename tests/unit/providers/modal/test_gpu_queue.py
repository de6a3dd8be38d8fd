"""Who waits for a GPU, and who is merely under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fleetctl.providers.modal.runs.modal_creator import GpuQueue

LONG_S = 3600.0


class Scene:
    """Creates by name, each at Modal until it is let go."""

    def __init__(self, places: int, *, patience_s: float) -> None:
        self.queue = GpuQueue(places, patience_s=patience_s)
        self.at_modal: list[str] = []
        self._rate_limiters: dict[str, asyncio.Event] = {}
        self._creates: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *runs: str) -> None:
        for run in runs:
            self._rate_limiters[run] = asyncio.Event()
            self._creates[run] = asyncio.ensure_future(self._create(run))
            await asyncio.sleep(0)

    async def end(self, run: str) -> None:
        self._rate_limiters[run].set()
        await self._creates[run]
        await asyncio.sleep(0)

    async def give_up(self, run: str) -> None:
        self._creates[run].cancel()
        await asyncio.wait({self._creates[run]})

    async def _create(self, run: str) -> None:
        async with self.queue.place(run):
            self.at_modal.append(run)
            await self._rate_limiters[run].wait()


def play(places: int, patience_s: float, tale: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        await tale(Scene(places, patience_s=patience_s))

    asyncio.run(told())


async def is_silent(queue: GpuQueue, run: str) -> bool:
    asking = asyncio.ensure_future(queue.wait_told(run))
    for _ in range(5):
        await asyncio.sleep(0)
    return asking.cancel()


def test_a_create_that_is_new_at_modal_does_not_wait_for_a_gpu() -> None:
    async def tale(scene: Scene) -> None:
        await scene.begin("a", "b")
        assert scene.at_modal == ["a"]
        assert await is_silent(scene.queue, "a")
        assert await is_silent(scene.queue, "b")  # the line may move at once
        assert await is_silent(scene.queue, "nobody")  # such as one that waits for its rate

    play(1, LONG_S, tale)


def test_behind_creates_that_all_wait_who_is_in_line_waits_too() -> None:
    async def tale(scene: Scene) -> None:
        await scene.begin("a", "b", "c")
        for run in ("a", "b", "c"):
            await scene.queue.wait_told(run)
        assert scene.at_modal == ["a", "b"]
        await scene.begin("later")
        await scene.queue.wait_told("later")

    play(2, 0.0, tale)


def test_a_place_that_gets_free_goes_to_who_came_first() -> None:
    async def tale(scene: Scene) -> None:
        await scene.begin("a", "b", "c", "d")
        await scene.end("a")
        assert scene.at_modal == ["a", "b"]
        await scene.give_up("c")
        await scene.end("b")
        assert scene.at_modal == ["a", "b", "d"]
        await scene.give_up("d")
        await scene.begin("e")
        assert scene.at_modal[-1] == "e"

    play(1, LONG_S, tale)
