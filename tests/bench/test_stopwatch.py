"""Whose a second of CPU time is: each party in a small play takes a number of its own of them, by a
clock that only the play moves, on each event loop that a controller may have.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from tests.bench import stopwatch


class Clock:
    """Moves when somebody works, as the CPU time of one thread does."""

    def __init__(self) -> None:
        self.now_s = 0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: int) -> None:
        self.now_s += seconds


class Sdk:
    """What an SDK does, in all the ways in which it can."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.thread = ""

    async def call(self) -> str:
        self.clock.work(1)
        await asyncio.sleep(0)
        self.clock.work(2)
        return "done"

    async def fail(self) -> None:
        self.clock.work(1)
        await asyncio.sleep(0)
        raise ValueError

    async def calls_tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.call())
            group.create_task(self.call())
        await asyncio.wait_for(self.call(), 600)

    async def begins_and_leaves(self) -> asyncio.Task[str]:
        return asyncio.ensure_future(self.call())

    async def calls_threads(self) -> None:
        self.thread = await asyncio.to_thread(lambda: threading.current_thread().name)

    async def calls_back(self, plain: Any, coroutine: Any) -> None:
        self.clock.work(1)
        plain()
        await coroutine()
        self.clock.work(1)

    async def connects(self, port: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        clock = self.clock

        class Protocol(asyncio.StreamReaderProtocol):
            def data_received(self, data: bytes) -> None:
                clock.work(len(data))
                super().data_received(data)

        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Protocol(reader), "127.0.0.1", port)
        return reader


LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.Loop}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A class of loops that counts, while others of its kind do not."""
    made = type("Counting", (LOOPS[request.param],), {})
    stopwatch.meter_loop(made)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(stopwatch, "watch", stopwatch.Stopwatch(one))
    return one


@pytest.fixture
def sdk(clock: Clock) -> Iterator[Sdk]:
    class Counted(Sdk):
        """Metered as a class is, and forgotten with the test."""

    for name in ("call", "fail", "calls_tasks", "begins_and_leaves", "calls_threads", "connects"):
        stopwatch.meter(Counted, name)
    stopwatch.meter_calling(Counted, "calls_back")
    yield Counted(clock)
    assert not stopwatch.watch.runs


def played(loop: Any, scene: Any) -> float:
    """What the SDK took of the scene's time."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scene)
    return stopwatch.watch.total_s


def test_each_step_of_a_call_is_the_sdks_and_what_is_between_is_ours(
    loop: Any, clock: Clock, sdk: Sdk
) -> None:
    async def other() -> None:
        clock.work(100)

    async def scene() -> None:
        clock.work(10)
        beside = asyncio.ensure_future(other())  # runs while the call waits
        assert await sdk.call() == "done"
        clock.work(10)
        await beside

    assert (played(loop, scene()), clock.now_s) == (3, 123)


def test_a_call_that_fails_or_is_cancelled_is_counted_to_its_end(
    loop: Any, clock: Clock, sdk: Sdk
) -> None:
    async def scene() -> None:
        with pytest.raises(ValueError):
            await sdk.fail()
        clock.work(10)
        call = asyncio.ensure_future(sdk.call())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        clock.work(10)

    assert (played(loop, scene()), clock.now_s) == (2, 22)


def test_tasks_that_an_sdk_begins_are_its_own_also_when_it_has_returned(
    loop: Any, clock: Clock, sdk: Sdk
) -> None:
    async def ours() -> None:
        clock.work(10)

    async def scene() -> None:
        await sdk.calls_tasks()
        left = await sdk.begins_and_leaves()
        await asyncio.gather(left, ours())

    assert (played(loop, scene()), clock.now_s) == (12, 22)


def test_what_an_sdk_calls_of_ours_is_ours(loop: Any, clock: Clock, sdk: Sdk) -> None:
    async def ours() -> None:
        clock.work(20)
        await asyncio.create_task(deeper())
        clock.work(20)

    async def deeper() -> None:
        clock.work(10)
        await sdk.call()

    async def scene() -> None:
        await sdk.calls_back(lambda: clock.work(30), ours)

    assert (played(loop, scene()), clock.now_s) == (5, 85)


def test_threads_that_work_for_an_sdk_are_known_by_their_name(
    loop: Any, clock: Clock, sdk: Sdk
) -> None:
    names: list[str] = []

    async def scene() -> None:
        await sdk.calls_threads()
        names.append(await asyncio.to_thread(lambda: threading.current_thread().name))

    played(loop, scene())
    assert sdk.thread.startswith(stopwatch.POOL)
    assert not names[0].startswith(stopwatch.POOL)


def test_what_arrives_on_a_connection_is_the_sdks_and_what_is_made_of_it_ours(
    loop: Any, clock: Clock, sdk: Sdk
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock.work(100)
        writer.write(b"seven..")
        writer.close()

    async def scene() -> None:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            reader = await sdk.connects(server.sockets[0].getsockname()[1])
            assert await reader.read() == b"seven.."
            clock.work(10)

    assert (played(loop, scene()), clock.now_s) == (7, 117)


def test_other_threads_neither_start_nor_stop_the_watch(clock: Clock, sdk: Sdk) -> None:
    thread = threading.Thread(target=lambda: asyncio.run(sdk.call()))
    thread.start()
    thread.join()
    assert (stopwatch.watch.total_s, clock.now_s) == (0, 3)
