"""The listener in a sandbox, asked by ordinary HTTP clients, with a line of the test's own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai

from fleetctl.guest.remote.relay import process
from fleetctl.guest.remote.relay.calls import AT_ONCE_MAX
from fleetctl.guest.remote.relay.http import BODY_BYTES_MAX
from tests.unit.guest.remote_world import Attached, Box, wait_for

LONG_S = 300.0  # far more than anything here takes
JSON = {"Content-Type": "application/json"}


class Line:
    """As the controller has it, over the verb `relay`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def told(self) -> dict[str, Any]:
        """The next line that says something; {} at the end."""
        while True:
            line = json.loads(await self._reader.readline() or b"{}")
            if line.get("e") != "alive":
                return dict(line)

    def say(self, number: str, **fields: Any) -> None:
        self._writer.write(json.dumps({"n": number, **fields}).encode() + b"\n")

    def answer(self, number: str, text: str) -> None:
        self.say(number, status=200, headers=JSON, piece=text, end=True)

    def drop(self) -> None:
        self._writer.close()


class World:
    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "relay")
        self.url = ""

    @asynccontextmanager
    async def living(self) -> AsyncIterator[aiohttp.ClientSession]:
        listener = socket.create_server(("127.0.0.1", 0))
        joining = socket.socket(socket.AF_UNIX)
        joining.bind(self._path)
        joining.listen()
        self._control, theirs = socket.socketpair()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(process._serve_sockets(listener, joining, theirs))
        headers = {"Authorization": "Bearer fl-1"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=headers, connector=connector) as client:
            yield client
        self._control.close()
        await serving

    def begin(self, run: str = "r1", token: str = "fl-1") -> None:
        self._control.sendall(json.dumps({"run": run, "token": token}).encode() + b"\n")

    def end(self, run: str = "r1") -> None:
        self._control.sendall(json.dumps({"over": run}).encode() + b"\n")

    async def join(self, run: str = "r1") -> Line:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=1 << 26)
        writer.write(run.encode() + b"\n")
        return Line(reader, writer)

    async def seen(self, client: aiohttp.ClientSession) -> None:
        """Until the relay has taken in what was done here before: it answers in turn."""
        for _ in range(2):
            async with client.get(self.url, headers={"Origin": "http://x"}) as reply:
                assert reply.status == 403

    def ask(self, client: aiohttp.ClientSession, **body: Any) -> asyncio.Task[tuple[int, bytes]]:
        async def asked() -> tuple[int, bytes]:
            url = f"{self.url}/v1/chat/completions"
            async with client.post(url, json=body) as reply:
                return reply.status, await reply.read()

        return asyncio.create_task(asked())


Tale = Callable[[World, aiohttp.ClientSession], Coroutine[Any, Any, None]]


def tale(told: Tale) -> Callable[[Path], None]:
    """A test in a relay where run `r1` may ask."""

    def test(tmp_path: Path) -> None:
        async def play() -> None:
            world = World(tmp_path)
            async with asyncio.timeout(LONG_S), world.living() as client:
                world.begin()
                await told(world, client)

        asyncio.run(play())

    test.__name__ = told.__name__
    return test


@tale
async def test_a_request_goes_out_under_a_number_and_its_answer_comes_back(
    world: World, client: aiohttp.ClientSession
) -> None:
    line, asking = await world.join(), world.ask(client, prompt="hi")
    told = await line.told()
    assert (told["method"], told["path"]) == ("POST", "/v1/chat/completions")
    assert (json.loads(told["body"]), told["have"]) == ({"prompt": "hi"}, 0)
    assert "fl-1" not in json.dumps(told)
    line.answer(told["n"], "hello")
    assert await asking == (200, b"hello")


@tale
async def test_what_has_no_whole_answer_is_told_again_over_the_next_line(
    world: World, client: aiohttp.ClientSession
) -> None:
    line, asking = await world.join(), world.ask(client, stream=True)
    first = await line.told()
    line.say(first["n"], status=200, headers=JSON, piece="one ")
    other = world.ask(client, prompt="done")
    second = await line.told()
    line.answer(second["n"], "done")
    assert await other == (200, b"done")
    line.drop()
    again = await world.join()
    told = await again.told()
    assert told == {**first, "have": 4}
    again.say(told["n"], b64=base64.b64encode(b"two").decode())
    again.say(told["n"], end=True)
    assert await asking == (200, b"one two")


@tale
async def test_pieces_of_a_stream_are_given_as_they_come_and_a_break_is_seen(
    world: World, client: aiohttp.ClientSession
) -> None:
    line = await world.join()
    coming = asyncio.create_task(client.post(f"{world.url}/t/fl-1/api/chat", data=b"\xff{}"))
    told = await line.told()
    assert (told["path"], told["b64"]) == ("/api/chat", base64.b64encode(b"\xff{}").decode())
    line.say(told["n"], status=200, headers=JSON, piece="one ")
    reply = await coming
    assert await reply.content.readany() == b"one "
    line.say(told["n"], broken=True)
    try:
        await reply.content.read()
        whole = True
    except aiohttp.ClientPayloadError:
        whole = False
    assert not whole


@tale
async def test_the_openai_client_speaks_to_it_as_it_is(
    world: World, client: aiohttp.ClientSession
) -> None:
    line = await world.join()
    async with openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="fl-1") as asks:
        coming = asyncio.create_task(
            asks.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "hi"}], stream=True
            )
        )
        told = await line.told()
        chunk = {"id": "c", "created": 0, "model": "m", "object": "chat.completion.chunk"}
        events = {"Content-Type": "text/event-stream"}
        line.say(told["n"], status=200, headers=events)
        for word in ("hel", "lo"):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            line.say(told["n"], piece=f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n")
        line.say(told["n"], piece="data: [DONE]\n\n", end=True)
        words = [one.choices[0].delta.content async for one in await coming]
    assert words == ["hel", "lo"]


@tale
async def test_a_client_that_leaves_cancels_also_while_there_is_no_line(
    world: World, client: aiohttp.ClientSession
) -> None:
    line, asking = await world.join(), world.ask(client)
    told = await line.told()
    asking.cancel()
    assert await line.told() == {"n": told["n"], "cancel": True}
    later = world.ask(client)
    told = await line.told()
    line.drop()
    await world.seen(client)
    later.cancel()
    await world.seen(client)
    again = await world.join()
    assert await again.told() == {"n": told["n"], "cancel": True}


@tale
async def test_so_many_at_once_and_the_next_waits(
    world: World, client: aiohttp.ClientSession
) -> None:
    line = await world.join()
    asking = [world.ask(client, i=i) for i in range(AT_ONCE_MAX + 1)]
    told = [await line.told() for _ in range(AT_ONCE_MAX)]
    assert len({one["n"] for one in told}) == AT_ONCE_MAX
    line.answer(told[0]["n"], "a")
    last = await line.told()
    for one in [*told[1:], last]:
        line.answer(one["n"], "a")
    assert {await one for one in asking} == {(200, b"a")}


@tale
async def test_the_longest_body_is_told_and_a_longer_one_refused(
    world: World, client: aiohttp.ClientSession
) -> None:
    line, url = await world.join(), f"{world.url}/v1/embeddings"
    asking = asyncio.create_task(client.post(url, data=b"x" * BODY_BYTES_MAX))
    told = await line.told()
    assert len(told["body"]) == BODY_BYTES_MAX
    line.answer(told["n"], "y" * BODY_BYTES_MAX)
    assert len(await (await asking).read()) == BODY_BYTES_MAX
    async with client.post(url, data=b"x" * (BODY_BYTES_MAX + 1)) as refused:
        assert refused.status == 413


@tale
async def test_only_the_token_of_the_run_under_way_asks_and_no_page_does(
    world: World, client: aiohttp.ClientSession
) -> None:
    url = f"{world.url}/v1/models"
    for headers, status in (
        ({"Authorization": "Bearer fl-2"}, 401),
        ({"Origin": "http://x"}, 403),
        ({"Host": "evil.example"}, 403),
    ):
        async with client.get(url, headers=headers) as reply:
            assert reply.status == status
    old = await world.join()
    world.end()
    assert await old.told() == {"e": "over"}
    world.begin("r2", "fl-2")
    asking = world.ask(client)
    assert (await asking)[0] == 401
    line = await world.join("r2")
    coming = asyncio.create_task(client.get(url, headers={"Authorization": "Bearer fl-2"}))
    line.answer((await line.told())["n"], "of r2")
    assert await (await coming).read() == b"of r2"


ASKS = """import os, time, urllib.request as u
url = os.environ["OPENAI_BASE_URL"] + "/models"
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
while True:
    try:
        print(url, u.urlopen(u.Request(url, headers=headers)).read().decode())
        break
    except OSError:
        time.sleep(0.01)
"""


class Joined:
    """The verb `relay` in a box."""

    def __init__(self, box: Box, run: str) -> None:
        self.process = box.verb("relay", "--run", run, piped=True)

    def told(self) -> dict[str, Any]:
        """The next line that says something; {} at the end."""
        assert self.process.stdout is not None
        while (line := json.loads(self.process.stdout.readline() or b"{}")).get("e") == "alive":
            pass
        return dict(line)

    def answer(self, number: str, text: str) -> None:
        assert self.process.stdin is not None
        news = {"n": number, "status": 200, "headers": JSON, "piece": text, "end": True}
        self.process.stdin.write(json.dumps(news).encode() + b"\n")
        self.process.stdin.flush()


def asking(box: Box, run: str) -> Attached:
    """A task that asks until it is answered; the address is for the sandbox to fill in."""
    variables = {"OPENAI_BASE_URL": "http://open/v1", "OPENAI_API_KEY": f"fl-{run}"}
    order = box.order(
        argv=[sys.executable, "-c", ASKS],
        run=run,
        reusable=True,
        linger_s=600.0,
        secret_names=sorted(variables),
        relay={"base": "http://open", "token": "OPENAI_API_KEY"},
    )
    return box.attach(order, env=variables)


def test_tasks_of_one_sandbox_ask_in_turn_at_one_address(python_box: Box) -> None:
    """As shipped. The listener's own process may die, and what it was asked is asked again."""
    box = python_box
    task, line = asking(box, "run-0"), Joined(box, "run-0")
    line.answer(line.told()["n"], "first")
    url, answer = task.rest().log.decode().split()
    assert (answer, line.told()) == ("first", {"e": "over"})
    task, line = asking(box, "run-1"), Joined(box, "run-1")
    number = line.told()["n"]
    children = Path(f"/proc/{box.supervisor}/task/{box.supervisor}/children").read_text()
    os.kill(int(children.split()[0]), signal.SIGKILL)
    assert line.told() == {}
    line = Joined(box, "run-1")
    told = line.told()
    assert told["n"] != number
    line.answer(told["n"], "second")
    assert task.rest().log.decode().split() == [url, "second"]
    files = [path.read_bytes() for path in box.directory.rglob("*") if path.is_file()]
    assert b"fl-run" not in b"".join(files)
    os.kill(box.supervisor, signal.SIGKILL)
    wait_for(lambda: not box.processes())  # it holds nothing that would outlive the supervisor
