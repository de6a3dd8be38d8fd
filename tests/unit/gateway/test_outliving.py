"""A gateway ends when nobody can ask it any more: without its directory, or without a renewal."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import fleetctl.gateway.__main__ as program
from fleetctl.gateway.gateway_state import GatewayState
from tests.emulators.llm.server import Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import in_loop, living

ENDS_S = 30.0


@in_loop
async def test_a_gateway_with_grants_ends_without_its_directory(tmp_path: Path) -> None:
    home = tmp_path / "gateway"
    home.mkdir()
    async with living(home, Model()) as gateway:
        assert (await gateway.ask("r1")).status == 200
        shutil.rmtree(home)
        until_s = time.monotonic() + ENDS_S
        while gateway.process.poll() is None:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.05)


class Clock:
    """A clock that tests set. looks: how often the gateway has read it."""

    def __init__(self) -> None:
        self.now_s, self.looks = 1000.0, 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s

    async def move(self, by_s: float, ending: asyncio.Future[None]) -> None:
        """Moves on, and returns once the gateway has looked several times, or has ended."""
        self.now_s += by_s
        until, until_s = self.looks + 6, time.monotonic() + ENDS_S
        while self.looks < until and not ending.done():
            assert time.monotonic() < until_s
            await asyncio.sleep(0.01)


@in_loop
async def test_a_gateway_with_grants_that_nobody_renews_ends(tmp_path: Path) -> None:
    clock, nearly_s = Clock(), program.FORGOTTEN_S - 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "LOOK_S", 0.01)
        async with hosting(tmp_path, Model()) as gateway:
            ending = asyncio.ensure_future(
                program._until_ended(gateway.state, lambda: True, clock_s=clock)
            )
            for renew in (lambda: gateway.ask("r1"), _hear(gateway.state)) * 2:
                await renew()  # a call of a task, or a word of a controller
                await clock.move(0.0, ending)
                await clock.move(nearly_s, ending)
                assert not ending.done()
            await clock.move(2.0, ending)
            assert ending.done() and gateway.state.grants


def _hear(state: GatewayState) -> Callable[[], Awaitable[None]]:
    async def hear() -> None:
        state.heard = True

    return hear
