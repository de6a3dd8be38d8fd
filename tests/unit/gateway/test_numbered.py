"""Calls with a number: told again and again, in pieces, and asked once."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleetctl.common.tokens import gateway_token
from fleetctl.gateway import answer_log as module
from fleetctl.gateway.answer_log import AnswerLog
from fleetctl.gateway.asking.call import EndpointCall
from fleetctl.gateway.data.idempotent_calls import join_call
from fleetctl.gateway.numbered_calls import CallAnswer
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_gateway_asking import until
from tests.unit.gateway.test_process import LIFE_S, Gateway, in_loop
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
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
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
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
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
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        for _ in range(2):
            assert await _is_broken(await begin(gateway, "7"))
        assert len(model.asked) == 1
        assert [(await begin(gateway, "8")).status for _ in range(2)] == [400, 200]


@in_loop
async def test_what_waits_for_a_run_that_is_over_is_not_asked(tmp_path: Path) -> None:
    model = Model(slots=1)
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        async with model.busy():
            asking = [asyncio.create_task(begin(gateway, str(n))) for n in range(3)]
            await until(lambda: model.asked and len(gateway.endpoint.waiting) == 2)
            await gateway.grant("r2")
            await until(lambda: not gateway.endpoint.in_flight)
        assert (len(model.asked), len(gateway.endpoint.waiting)) == (1, 0)
        await asyncio.gather(*asking, return_exceptions=True)
        assert gateway.state.ledger.tree(next(iter(gateway.state.ledger._rows))).holds == 0


@in_loop
async def test_what_is_cancelled_before_its_first_step_keeps_nobody_waiting(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        grant = next(iter(gateway.state.grants.values()))
        call = EndpointCall(
            gateway.state, grant, gateway.endpoint, "/v1/chat/completions", BODY, 80
        )
        retold = join_call(call, "7", 0)
        gateway.state.numbered.cancel({"r1"})
        assert await retold.whole() is None
        assert (await begin(gateway, "7")).status == 200 and len(model.asked) == 1


@in_loop
async def test_kept_answers_are_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    kept = AnswerLog(tmp_path / "kept.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RUN_BYTES_MAX", 100)
        for n in range(4):
            await kept.put("r1", str(n), CallAnswer(200, {"Content-Type": "x"}, b"x" * 40))
        await kept.put("r2", "0", CallAnswer(200, {"Content-Type": "x"}, b""))
    assert [kept.find("r1", str(n)) is not None for n in range(4)] == [False, False, True, True]
    kept.close()
    assert (tmp_path / "kept.db").stat().st_mode & 0o777 == 0o600
    again = AnswerLog(tmp_path / "kept.db")
    assert again.find("r2", "0") is not None and again.find("r1", "3") is not None
    again.close()


async def _is_broken(reply: Any) -> bool:
    try:
        await reply.read()
    except aiohttp.ClientPayloadError:
        return True
    return False
