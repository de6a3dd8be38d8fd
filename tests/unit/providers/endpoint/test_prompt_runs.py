"""The runs of provider `endpoint`: when a start ends, and what is seen meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Ended, Gone, Observation
from fleetctl.providers.contract.base import EndpointAccess, RunRef, RunRequest
from fleetctl.providers.endpoint.endpoint_provider import EndpointProvider
from fleetctl.providers.endpoint.gateway_connection import GatewayReply
from fleetctl.specs.blocks.template import Template
from tests.unit.gateway.test_process import in_loop
from tests.unit.providers.endpoint.test_prompt_asking import says

REF = RunRef("run-0", "run-0", "", 0, "uid")


class Held:
    """In place of the line: answers once a test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Mapping[str, Any]]] = []
        self.reply: asyncio.Future[GatewayReply] = asyncio.get_running_loop().create_future()
        self.dropped: list[int] = []

    async def post(
        self,
        access: EndpointAccess,
        endpoint: str,
        number: int,
        body: Mapping[str, Any],
        *,
        batched: bool = False,
    ) -> GatewayReply:
        self.asked.append((endpoint, number, body))
        self.batched = batched
        return await asyncio.shield(self.reply)

    async def drop(self, access: EndpointAccess, number: int) -> None:
        self.dropped.append(number)


def request(**template: Any) -> RunRequest:
    fields = {"prompt": {"endpoint": "small", "text": "hi ${n}"}, **template}
    return RunRequest(
        run="run-0",
        sandbox="run-0",
        owner="store",
        uid="uid",
        resource="batchjob/ask",
        index=0,
        attempt=1,
        template=Template.model_validate(fields),
        template_hash="t",
        params={"n": 3},
        reusable=False,
        endpoints=EndpointAccess(("small",), {"chat": "q"}, "http://127.0.0.1:1", "token"),
    )


def made(home: Path) -> tuple[EndpointProvider, Held, list[str]]:
    told: list[str] = []
    provider = EndpointProvider(home, store_id="store", notify=told.append)
    line = provider._line = Held()  # type: ignore[assignment]
    return provider, line, told


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def seen(provider: EndpointProvider) -> list[Observation]:
    return list(await provider.observe([REF]))


@in_loop
async def test_a_start_ends_once_its_outcome_was_observed(tmp_path: Path) -> None:
    provider, line, told = made(tmp_path)
    start = asyncio.create_task(provider.start(request()))
    await turns()
    assert (await seen(provider), told) == ([], [])  # asked, and nothing is known
    line.reply.set_result(says("hello"))
    await turns()
    assert told == ["run-0"] and not start.done()
    (end,) = await seen(provider)
    assert isinstance(end, Ended) and end.ok and '"answer":"hello"' in str(end.result)
    await start
    assert not line.batched
    ((name, number, body),) = line.asked
    assert (name, number, body["model"]) == ("small", 1, "chat")
    assert body["messages"] == [{"role": "user", "content": "hi 3"}]


@pytest.mark.parametrize("mode", ["online", "batch"])
def test_a_row_is_asked_as_its_prompt_states(tmp_path: Path, mode: str) -> None:
    common = {"endpoint": "other", "model": "judge", "mode": mode}
    asked = {**common, "parameters": {"temperature": 0.5}}
    talk = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two ${n}"}]
    system = {"role": "system", "content": "be short"}
    for prompt, messages in [
        ({"text": "hi ${n}", "system": "be short"}, [system, {"role": "user", "content": "hi 3"}]),
        ({"messages": talk}, [talk[0], {"role": "assistant", "content": "two 3"}]),
    ]:
        line = asyncio.run(_ask(tmp_path, {**asked, **prompt}))
        ((name, _, body),) = line.asked
        assert (name, body["model"], body["temperature"]) == ("other", "judge", 0.5)
        assert (body["messages"], line.batched) == (messages, mode == "batch")


async def _ask(home: Path, prompt: Mapping[str, Any]) -> Held:
    """Asks a row until its outcome was observed."""
    provider, line, _ = made(home)
    start = asyncio.create_task(provider.start(request(prompt=prompt)))
    line.reply.set_result(says("hello"))
    await turns()
    (end,) = await seen(provider)
    assert isinstance(end, Ended) and end.ok
    await start
    return line


@in_loop
async def test_a_start_that_is_given_up_leaves_nothing_or_its_outcome(tmp_path: Path) -> None:
    provider, line, _ = made(tmp_path)
    start = asyncio.create_task(provider.start(request()))
    await turns()
    start.cancel()
    await turns()
    assert [type(it) for it in await seen(provider)] == [Gone]
    await provider.stop(REF, grace_s=10)
    assert line.dropped == [1, 2, 3, 4]  # what the gateway has not asked yet is not asked
    line.reply.set_result(says("hello"))
    again = asyncio.create_task(provider.start(request()))
    await turns()
    again.cancel()  # between the answer and its observation
    await turns()
    await provider.stop(REF, grace_s=10)
    assert line.dropped == [1, 2, 3, 4]  # it has its answer
    assert [type(it) for it in await seen(provider)] == [Ended]
    assert [type(it) for it in await seen(provider)] == [Gone]


@in_loop
async def test_a_start_that_asked_nobody_raises_and_can_be_made_again(tmp_path: Path) -> None:
    provider, line, told = made(tmp_path)
    line.reply.set_exception(Unavailable("away", reason="Unreachable"))
    with pytest.raises(Unavailable):
        await provider.start(request())
    assert told == []
    with pytest.raises(Refused):
        await provider.start(request(prompt={"endpoint": "small", "text": "hi ${other}"}))


@in_loop
async def test_an_answer_that_does_not_come_in_time_fails_the_attempt(tmp_path: Path) -> None:
    provider, _, told = made(tmp_path)
    start = asyncio.create_task(provider.start(request(timeoutSeconds=0.001)))
    while not told:
        await asyncio.sleep(0)
    (end,) = await seen(provider)
    assert isinstance(end, Ended)
    assert (end.ok, end.infrastructure, end.reason) == (False, False, "Timeout")
    await start


@in_loop
async def test_what_is_no_prompt_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    provider, line, _ = made(tmp_path)
    template = Template.model_validate({"script": "x"})
    assert "sandboxes for programs" in provider.lacks(template)
    with pytest.raises(Refused):
        await provider.ensure_volume("box")
    assert await provider.owned() == () and line.asked == []
