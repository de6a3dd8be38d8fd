"""Tasks in sandboxes of both clouds ask models through the gateway on this machine: the real SDKs
against the emulators, the real gateway, and an emulated model server that knows what it was asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fleetctl.common.tokens import gateway_token
from fleetctl.providers.contract.base import EndpointAccess, Relaying, RunRef
from tests.contracts.daytona_worlds import DaytonaWorld
from tests.contracts.kubernetes_worlds import KubernetesWorld
from tests.contracts.kubernetes_worlds import emulated as kubernetes_emulated
from tests.contracts.modal_worlds import ModalWorld
from tests.contracts.provider_answers import SpoiltWorld
from tests.contracts.provider_worlds import eventually, python
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.llm.server import Model, embedding
from tests.emulators.modal.running import ModalEmulator
from tests.unit.gateway.test_process import Gateway, living

KEY = "sk-canary-of-the-server"
ASKS = """
import json, os, urllib.request

def ask(prompt, **more):
    body = {"model": "chat", "messages": [{"role": "user", "content": prompt}], **more}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    headers["Content-Type"] = "application/json"
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return urllib.request.urlopen(request)
"""
STREAMS = (
    ASKS
    + """
print(json.load(ask("first"))["choices"][0]["message"]["content"], flush=True)
words = []
for line in ask("second in pieces", stream=True):
    if line.startswith(b"data: {"):
        delta = json.loads(line[6:])["choices"][0]["delta"]
        if "content" in delta:
            words.append(delta["content"])
            print("piece", words[-1], flush=True)
key = "sk-canary" + "-of-the-server"
for top in ("/tmp", "/root", "/home", "/.fleetctl", "/proc/self/environ", "/proc/1/environ"):
    for path, _, names in [(top, [], [""])] if top[1:5] == "proc" else os.walk(top):
        for name in names:
            try:
                data = open(os.path.join(path, name).rstrip("/"), "rb").read()
            except OSError:
                continue
            assert key.encode() not in data, path
print("whole:", " ".join(words), flush=True)
"""
)

STAYS = """
if stay:
    answer = ask("streams", stream=True)
    answer.readline()
    print("streams", flush=True)
    answer.read()
"""
Build = Callable[[Path], SpoiltWorld]


@asynccontextmanager
async def played(
    build: Build, path: Path, model: Model
) -> AsyncIterator[tuple[SpoiltWorld, Gateway]]:
    (path / "gateway").mkdir()
    async with living(path / "gateway", model) as gateway:
        spec = {"servers": [{"url": model.url, "slots": 4}], "models": {"chat": "tiny"}}
        row = {"name": "small", "namespace": "default", "generation": 1, "spec": spec, "key": KEY}
        await (await gateway.control.put("/endpoints", json={"endpoints": [row]})).read()
        world = build(path / "world")
        try:
            yield world, gateway
        finally:
            await world.close()


def access(gateway: Gateway, run: str) -> EndpointAccess:
    token = gateway_token(gateway.key, run)
    return EndpointAccess(("small",), {"chat": "tiny"}, gateway.url, token)


def test_a_task_on_modal_asks_once_whatever_becomes_of_its_line(
    tmp_path: Path, modal_emulator: ModalEmulator
) -> None:
    asyncio.run(_asked_once(tmp_path, lambda path: ModalWorld(path, modal_emulator)))


def test_a_task_on_daytona_asks_once_whatever_becomes_of_its_line(
    tmp_path: Path, daytona_emulator: DaytonaEmulator
) -> None:
    asyncio.run(_asked_once(tmp_path, lambda path: DaytonaWorld(path, daytona_emulator)))


def test_runs_of_one_sandbox_are_told_apart_and_a_stop_cancels_what_is_asked(
    tmp_path: Path, modal_emulator: ModalEmulator
) -> None:
    async def tale() -> None:
        model = Model(key=KEY, held=asyncio.Event())
        build = partial(ModalWorld, emulator=modal_emulator)
        async with played(build, tmp_path, model) as (world, gateway):
            await gateway.grant("r1", "r2")
            asks = python(ASKS + "ask('hi').read(); print('first', flush=True)" + STAYS)
            fields = {"sandbox": "r1", "reusable": True}
            first = await world.start(
                asks, run="r1", params={"stay": 0}, endpoints=access(gateway, "r1"), **fields
            )
            assert (await world.ended(first)).ok
            second = await world.start(
                asks, run="r2", params={"stay": 1}, endpoints=access(gateway, "r2"), **fields
            )
            await world.log_holds(second, b"streams")
            await world.provider.stop(second, grace_s=0.0)

            async def cancelled() -> bool:
                return model.cancelled == 1

            await eventually(cancelled, "the stream of the stopped run was cancelled")
            used = await gateway.used()
            assert {run: row["calls"] for run, row in used.items()} == {"r1": 1, "r2": 2}
            assert len(model.asked) == 3

    asyncio.run(tale())


async def _asked_once(path: Path, build: Build) -> None:
    model = Model(key=KEY, held=asyncio.Event())
    async with played(build, path, model) as (world, gateway):
        asked = access(gateway, "r1")
        ref = await world.start(python(STREAMS), run="r1", endpoints=asked)
        await world.log_holds(ref, b"piece echo:")
        world.cut(ref)
        await _next_controller(world, ref, asked)
        assert model.held is not None
        model.held.set()
        seen = await world.ended(ref)
        log = (await world.log(ref)).decode()
        assert seen.ok, log
        assert "echo: first\n" in log and "whole: echo: second in pieces\n" in log
        prompts = [it["messages"][-1]["content"] for it in model.asked]
        assert prompts == ["first", "second in pieces"]
        assert not model.cancelled
        for file in world.directory.rglob("*"):
            data = file.read_bytes() if file.is_file() else b""
            assert KEY.encode() not in data and asked.token.encode() not in data, file


BATCHES = """
from fleetctl_llm import embed, llm_map
SUBMIT(
    batch=llm_query_batched([f"p{n}" for n in range(20)]),
    vectors=embed(["a", "b"]),
    chain=llm_map(lambda text: llm_query(llm_query(text)), ["x", "y"]),
)
"""


def test_a_task_on_modal_asks_in_batches_by_the_helpers(
    tmp_path: Path, modal_emulator: ModalEmulator
) -> None:
    asyncio.run(_in_batches(tmp_path, lambda path: ModalWorld(path, modal_emulator)))


def test_a_task_in_a_cluster_asks_once_whatever_becomes_of_its_line(tmp_path: Path) -> None:
    with kubernetes_emulated() as emulator:
        asyncio.run(_asked_once(tmp_path, lambda path: KubernetesWorld(path, emulator)))


def test_a_task_on_daytona_asks_in_batches_by_the_helpers(
    tmp_path: Path, daytona_emulator: DaytonaEmulator
) -> None:
    asyncio.run(_in_batches(tmp_path, lambda path: DaytonaWorld(path, daytona_emulator)))


async def _in_batches(path: Path, build: Build) -> None:
    model = Model(key=KEY)
    async with played(build, path, model) as (world, gateway):
        ref = await world.start(python(BATCHES), run="r1", endpoints=access(gateway, "r1"))
        seen = await world.ended(ref)
        assert seen.ok, (await world.log(ref)).decode()
        assert json.loads(seen.result or "") == {
            "batch": [f"echo: p{number}" for number in range(20)],
            "vectors": [embedding("a"), embedding("b")],
            "chain": ["echo: echo: x", "echo: echo: y"],
        }


async def _next_controller(world: SpoiltWorld, ref: RunRef, asked: EndpointAccess) -> None:
    """The one before is gone, with its line, in the middle of an answer."""
    await world.provider.close()
    world.provider = world.again()
    await world.alive(ref)
    assert isinstance(world.provider, Relaying)
    world.provider.relay(ref, asked)
