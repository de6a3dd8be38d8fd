"""The line that carries numbered calls of many runs."""

import asyncio
import json
import time
from collections import deque
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.test_process import Gateway, in_loop, living

PATH = "/endpoints/small/v1/chat/completions"


Line = aiohttp.ClientWebSocketResponse


def open_line(gateway: Gateway) -> Any:
    token = gateway_token(gateway.key, "r1")
    headers = {"Authorization": f"Bearer {token}"}
    return gateway.tasks.ws_connect(gateway.url + "/calls", headers=headers)


async def send(gateway: Gateway, line: Line, *, number: int, **changes: Any) -> None:
    token = gateway_token(gateway.key, "r1")
    head = {"id": 7, "token": token, "path": PATH, "number": number, **changes}
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    await line.send_bytes(json.dumps(head).encode() + b"\n" + json.dumps(body).encode())


async def ask(
    gateway: Gateway, line: Line, *, number: int, **changes: Any
) -> tuple[dict[str, Any], Any]:
    """The head and the body of the next reply."""
    await send(gateway, line, number=number, **changes)
    told, _, answer = (await line.receive_bytes()).partition(b"\n")
    return json.loads(told), json.loads(answer)


@in_loop
async def test_a_line_hears_what_was_kept_and_asks_anew_what_failed(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        await gateway.declare([model], retry={"attempts": 1})
        async with open_line(gateway) as line:
            head, answer = await ask(gateway, line, number=1)
            assert head == {"id": 7, "status": 200}
            assert answer["choices"][0]["message"]["content"] == "echo: hi"
        async with open_line(gateway) as line:
            assert (await ask(gateway, line, number=1))[1] == answer
            assert len(model.asked) == 1
            model.faults.append(Fault(500))
            assert (await ask(gateway, line, number=2))[0]["status"] == 500
            assert (await ask(gateway, line, number=2))[0]["status"] == 200
            assert len(model.asked) == 3
            model.faults.append(Fault(429, retry_after="86400"))
            began_s = time.time()
            again_at_s = (await ask(gateway, line, number=3))[0]["again_at_s"]
            assert began_s + 86400 <= again_at_s <= time.time() + 86400


@in_loop
async def test_a_line_is_for_tasks_and_their_endpoints_alone(tmp_path: Path) -> None:
    async with living(tmp_path, Model()) as gateway:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await gateway.tasks.ws_connect(gateway.url + "/calls", origin="http://evil.example")
        for headers in ({}, {"Authorization": "Bearer stranger"}):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await gateway.tasks.ws_connect(gateway.url + "/calls", headers=headers)
        async with open_line(gateway) as line:
            head, answer = await ask(gateway, line, number=1, token="stranger")
            assert (head["status"], answer["error"]["type"]) == (401, "fleetctl")
            elsewhere = PATH.replace("small", "other")
            assert (await ask(gateway, line, number=1, path=elsewhere))[0]["status"] == 404
            assert (await ask(gateway, line, number=1, path="/health"))[0]["status"] == 404
            await line.send_bytes(b"no head")
            assert (await line.receive()).type is aiohttp.WSMsgType.CLOSE


@in_loop
async def test_what_is_given_up_is_not_asked(tmp_path: Path) -> None:
    model = Model(slots=1, faults=deque([Fault("hang")]))
    async with living(tmp_path, model) as gateway:
        async with open_line(gateway) as line:
            await send(gateway, line, number=1)
            await send(gateway, line, number=2)  # waits for the slot
            while not model.asked:
                await asyncio.sleep(0)
            await send(gateway, line, number=2, drop=True)
            await send(gateway, line, number=1, drop=True)
            await send(gateway, line, number=3, id=9)
            heads = [json.loads((await line.receive_bytes()).partition(b"\n")[0]) for _ in "123"]
        # Who gave it up waits no more, and is told so all the same.
        assert [(it["id"], it["status"]) for it in heads] == [(7, 502), (7, 502), (9, 200)]
        assert (len(model.asked), model.cancelled) == (2, 1)
