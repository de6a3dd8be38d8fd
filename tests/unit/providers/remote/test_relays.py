"""The controller's end of a relay: lines of the test's own, a gateway that notes what it hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from aiohttp import web

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.base import EndpointAccess
from fleetctl.providers.remote.relay import Relays
from fleetctl.providers.remote.relay_call import (
    Outbox,
    RelayAnswer,
    RelayRequest,
    read_message,
    write_answer,
)
from fleetctl.providers.remote.runs.follower import FollowPace, SandboxOver

LONG_S = 300.0  # far more than anything here takes
QUICK = FollowPace(retry_initial_s=0.01, retry_max_s=0.05)
PIECES = 20


class Line:
    """What a sandbox tells is put here; what it is written, is kept, write by write."""

    def __init__(self, changed: asyncio.Event) -> None:
        self._told: asyncio.Queue[str] = asyncio.Queue()
        self.writes: list[str] = []
        self.written = asyncio.Event()
        self.closed = False
        self._changed = changed

    async def send(self, text: str) -> None:
        self.writes.append(text)
        self.written.set()

    async def pieces(self) -> AsyncGenerator[str, None]:
        while piece := await self._told.get():
            yield piece

    async def close(self) -> None:
        self.closed = True
        self._changed.set()

    def ask(self, number: str, path: str = "/v1/chat/completions", have: int = 0) -> None:
        request = {"n": number, "method": "POST", "path": path, "headers": {}, "body": "{}"}
        self.say({**request, "have": have})

    def say(self, message: object) -> None:
        self._told.put_nowait(json.dumps(message) + "\n")

    def drop(self) -> None:
        self._told.put_nowait("")

    async def answered(self, number: str) -> str:
        """The text of an answer that is whole or broken."""
        while True:
            news = [json.loads(it) for it in "".join(self.writes).splitlines()]
            mine = [it for it in news if it["n"] == number]
            if mine and ("end" in mine[-1] or "broken" in mine[-1]):
                return "".join(it.get("piece", "") for it in mine)
            self.written.clear()
            await self.written.wait()


class World:
    """alive: what is known of run `r1`."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.heard: list[tuple[str, str, str, str]] = []
        self.held, self.arrived = asyncio.Event(), asyncio.Event()
        self.alive: bool | None = True
        self.trouble: Exception | None = None
        self.relays = Relays(self, lives=lambda _: self.alive, pace=QUICK)

    async def line(self, handle: str, run: str) -> Line:
        assert (handle, run) == ("sb-1", "r1")
        if self.trouble is not None:
            raise self.trouble
        line = Line(self.arrived)
        self.lines.append(line)
        self.arrived.set()
        return line

    async def joined(self, count: int = 1) -> Line:
        await self.until(lambda: len(self.lines) >= count)
        return self.lines[-1]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), LONG_S)

    async def serve(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.access = EndpointAccess(
            ("small",), {}, f"http://127.0.0.1:{self._runner.addresses[0][1]}", "fl-1"
        )

    async def stop(self) -> None:
        await self.relays.close()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        number = request.headers.get("X-Fleetctl-Number", "")
        have = request.headers.get("X-Fleetctl-Have", "")
        assert request.headers["Authorization"] == "Bearer fl-1"
        self.heard.append((request.method, request.path, number, have))
        self.arrived.set()
        if request.path == "/held":
            await self.held.wait()
        if request.path != "/stream":
            return web.json_response({"of": number}, headers={"x-should-retry": "false"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for at in range(PIECES):
            await response.write(b"%d " % at)
        return response


Tale = Callable[[World], Coroutine[Any, Any, None]]


def tale(told: Tale) -> Callable[[], None]:
    """A test whose run `r1` is relayed from the beginning."""

    def test() -> None:
        async def play() -> None:
            world = World()
            await world.serve()
            world.relays.hold("r1", "sb-1", world.access)
            try:
                async with asyncio.timeout(LONG_S):
                    await told(world)
            finally:
                await world.stop()

        asyncio.run(play())

    test.__name__ = told.__name__
    return test


@tale
async def test_an_answer_costs_one_write_and_a_stream_comes_whole(world: World) -> None:
    line = await world.joined()
    line.ask("a.1")
    assert json.loads(await line.answered("a.1")) == {"of": "a.1"}
    assert len(line.writes) == 1
    head = json.loads(line.writes[0])
    assert (head["status"], head["headers"]["x-should-retry"]) == (200, "false")
    line.ask("a.2", "/stream")
    assert await line.answered("a.2") == "".join(f"{at} " for at in range(PIECES))
    assert world.heard[0] == ("POST", "/v1/chat/completions", "a.1", "0")


@tale
async def test_a_lost_line_is_made_anew_and_what_is_told_again_goes_under_its_number(
    world: World,
) -> None:
    line = await world.joined()
    line.ask("a.1", "/held")
    await world.until(lambda: len(world.heard) == 1)
    line.drop()
    again = await world.joined(2)
    assert line.closed
    again.ask("a.1", "/held", have=7)
    await world.until(lambda: len(world.heard) == 2)
    world.held.set()
    assert json.loads(await again.answered("a.1")) == {"of": "a.1"}
    assert world.heard == [("POST", "/held", "a.1", "0"), ("POST", "/held", "a.1", "7")]
    assert line.writes == []


@tale
async def test_a_client_that_left_and_the_end_of_the_run_cancel_at_the_gateway(
    world: World,
) -> None:
    line = await world.joined()
    line.ask("a.1", "/held")
    line.ask("a.2", "/held")
    await world.until(lambda: len(world.heard) == 2)
    line.say({"n": "a.1", "cancel": True})
    await world.until(lambda: ("DELETE", "/asked/a.1", "", "") in world.heard)
    line.say({"e": "over"})
    await world.until(lambda: ("DELETE", "/asked/a.2", "", "") in world.heard)
    await world.until(lambda: line.closed)
    assert line.writes == []
    assert len(world.lines) == 1


@tale
async def test_a_gateway_that_comes_back_elsewhere_is_asked_there(world: World) -> None:
    gone = EndpointAccess(("small",), {}, "http://127.0.0.1:1", "fl-1")
    world.relays.hold("r1", "sb-1", gone)
    line = await world.joined()
    line.ask("a.1")
    world.relays.hold("r1", "sb-1", world.access)
    assert json.loads(await line.answered("a.1")) == {"of": "a.1"}
    assert len(world.lines) == 1


@tale
async def test_one_odd_answer_does_not_end_a_relay_and_the_end_of_its_run_does(
    world: World,
) -> None:
    line = await world.joined()
    for trouble in (SandboxOver("sb-1"), Unavailable("away"), ConnectionError()):
        world.trouble = trouble
        line.drop()
        await world.until(lambda line=line: line.closed)  # type: ignore[misc]
        world.trouble = None
        line = await world.joined(len(world.lines) + 1)
    world.alive = False
    world.relays.look("r1")
    await world.until(lambda: line.closed)
    assert len(world.lines) == 4


def test_what_is_ready_at_the_same_time_goes_in_one_write() -> None:
    async def play() -> None:
        outbox, line = Outbox(), Line(asyncio.Event())
        for number in ("a.1", "a.2"):
            outbox.begin(number, 200, {})
            for at in range(PIECES):
                outbox.piece(number, b"%d " % at)
            outbox.end(number)
        sending = asyncio.ensure_future(outbox.send(line))
        assert (await line.answered("a.1")) == (await line.answered("a.2"))
        sending.cancel()
        assert len(line.writes) == 1

    asyncio.run(play())


def test_what_no_guest_writes_is_no_request() -> None:
    good = {"n": "a.1", "method": "POST", "path": "/v1/x", "headers": {}, "body": "é", "have": 0}
    assert read_message(json.dumps(good)) == RelayRequest(
        "a.1", "POST", "/v1/x", {}, "é".encode(), 0
    )
    for wrong in (
        {"path": "v1"},
        {"path": "/a b"},
        {"path": "/a\r\nHost: x"},
        {"method": "get"},
        {"n": "../x"},
        {"headers": {"accept": "a\r\nb: c"}},
        {"have": -1},
        {"b64": "?"},
    ):
        assert read_message(json.dumps({**good, **wrong})) is None
    assert read_message("bash: warning") is None and read_message("[1]") is None


def test_a_long_answer_is_cut_and_its_letters_are_kept() -> None:
    news = RelayAnswer(200, {"content-type": "x"}, bytearray("é".encode() * 2**20), end=True)
    lines = [json.loads(it) for it in write_answer("a.1", news).splitlines()]
    assert [sorted(it) for it in lines] == [
        ["headers", "n", "piece", "status"],
        ["end", "n", "piece"],
    ]
