"""Calls with a number: told again and again, in pieces, and asked once."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.test_process import LIFE_S, Gateway, in_loop, living
from tests.unit.gateway.test_streams import BODY


async def begin(gateway: Gateway, number: str, have: int = 0) -> aiohttp.ClientResponse:
    headers = _headers(gateway) | {"X-Fleetctl-Number": number, "X-Fleetctl-Have": str(have)}
    url = gateway.url + "/v1/chat/completions"
    return await gateway.tasks.post(url, json=BODY, headers=headers)


def _headers(gateway: Gateway) -> dict[str, str]:
    return {"Authorization": f"Bearer {gateway_token(gateway.key, 'r1')}"}


@in_loop
async def test_a_stream_whose_line_was_lost_goes_on_where_it_was(tmp_path: Path) -> None:
    model = Model(held=asyncio.Event())
    async with living(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        reply = await begin(gateway, "7")
        first = await reply.content.readany()
        reply.close()
        assert b"echo:" in first and not model.cancelled
        assert model.held is not None
        model.held.set()
        rest = await (await begin(gateway, "7", len(first))).read()
        assert first + rest == await (await begin(gateway, "7")).read()
        assert rest.endswith(b"data: [DONE]\n\n") and len(model.asked) == 1
        # Of another life's number nothing is kept: its rest would be of another answer.
        assert (await begin(gateway, "other", 10)).status == 502
        assert len(model.asked) == 1


@in_loop
async def test_a_client_that_left_is_told_by_its_number(tmp_path: Path) -> None:
    model = Model(held=asyncio.Event())
    async with living(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        reply = await begin(gateway, "7")
        await reply.content.readany()
        await gateway.tasks.delete(gateway.url + "/asked/7", headers=_headers(gateway))
        assert await _is_broken(reply)
        while not model.cancelled:
            await asyncio.sleep(0.01)


@in_loop
async def test_what_broke_is_told_as_broken_and_an_error_can_be_asked_again(
    tmp_path: Path,
) -> None:
    model = Model()
    model.faults.extend([Fault("cut"), Fault(400)])
    async with living(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        for _ in range(2):
            assert await _is_broken(await begin(gateway, "7"))
        assert len(model.asked) == 1
        assert [(await begin(gateway, "8")).status for _ in range(2)] == [400, 200]


async def _is_broken(reply: Any) -> bool:
    try:
        await reply.read()
    except aiohttp.ClientPayloadError:
        return True
    return False
