"""Streams through the gateway: pieces as they come, clients that leave, the cache beside them."""

import asyncio
from collections import deque
from pathlib import Path

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import LIFE_S, in_loop

BODY = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "a b"}]}


@in_loop
async def test_a_stream_comes_in_pieces_and_a_client_that_leaves_ends_it(tmp_path: Path) -> None:
    model = Model(held=asyncio.Event())
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        headers = {"Authorization": f"Bearer {gateway_token(gateway.key, 'r1')}"}
        url = gateway.url + "/v1/chat/completions"
        reply = await gateway.tasks.post(url, json=BODY, headers=headers)
        assert b"echo:" in await reply.content.readany()  # the server still holds the rest
        reply.close()
        while not model.cancelled:
            await asyncio.sleep(0.01)
        model.held.set()
        assert (await gateway.ask("r1")).status == 200


@in_loop
async def test_a_stream_that_broke_is_not_asked_again(tmp_path: Path) -> None:
    model = Model()
    model.faults.append(Fault("cut"))
    async with hosting(tmp_path, model) as gateway:
        try:
            await gateway.ask("r1", stream=True)
            whole = True
        except Exception:
            whole = False
        assert not whole
        assert len(model.asked) == 1


@in_loop
async def test_a_cached_answer_is_asked_once_and_counted_as_a_hit(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], cache={"policy": "Deterministic"})
        for temperature in (0, 0, 1, 1):
            await gateway.ask("r1", temperature=temperature)
        assert len(model.asked) == 3
        assert (await gateway.used())["r1"]["hits"] == 1
        assert (tmp_path / "cache.db").stat().st_mode & 0o777 == 0o600


@in_loop
async def test_an_answer_that_cannot_be_kept_is_given_all_the_same(tmp_path: Path) -> None:
    model, file = Model(), tmp_path / "cache.db"
    async with hosting(tmp_path, model) as gateway:
        file.mkdir()  # as on a full disk, nothing can be written there
        await gateway.declare([model], cache={"policy": "Always"})
        assert (await gateway.ask("r1")).status == 200
        file.rmdir()  # there is room again
        for _ in range(2):
            assert (await gateway.ask("r1")).status == 200
        assert len(model.asked) == 2


@in_loop
async def test_an_answer_that_is_kept_is_given_to_no_other_namespace(tmp_path: Path) -> None:
    model = Model()
    places = {"ours": "r1", "theirs": "r2"}
    async with hosting(tmp_path, model) as gateway:
        spec = {
            "servers": [{"url": f"{model.url}/v1"}],
            "models": {"chat": "tiny"},
            "cache": {"policy": "Deterministic"},
        }
        rows = [
            {"name": "small", "namespace": it, "generation": 1, "spec": spec, "key": ""}
            for it in places
        ]
        await (await gateway.control.put("/endpoints", json={"endpoints": rows})).read()
        grants = [
            {"run": run, "tree": run, "uid": run, "object": "batchjob/a", "namespace": place}
            | {"endpoints": ["small"]}
            for place, run in places.items()
        ]
        await (await gateway.control.put("/grants", json={"grants": grants, "caps": []})).read()
        for run in ("r1", "r2", "r1", "r2"):
            assert (await gateway.ask(run, temperature=0)).status == 200
        assert len(model.asked) == 2
        assert [row["hits"] for row in (await gateway.used()).values()] == [1, 1]


@in_loop
async def test_health_names_the_model_that_is_missing(tmp_path: Path) -> None:
    model = Model(models=("other",))
    async with hosting(tmp_path, model) as gateway:
        row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
        assert (row["ready"], row["reason"]) == (False, "ModelNotFound")
        assert "leave `models` out" in row["hint"]
        model.models, model.key = ("tiny",), "secret"
        row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
        assert (row["ready"], row["reason"]) == (False, "KeyRefused")


@in_loop
async def test_a_model_that_is_not_listed_holds_nobody_back(tmp_path: Path) -> None:
    model = Model(models=("tiny", "openai/*"), unlisted=("deepseek/r1:free", "openai/gpt-4o"))
    async with hosting(tmp_path, model) as gateway:
        names = {"chat": "tiny", "gpt": "openai/gpt-4o"}
        await gateway.declare([model], models=names)
        row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
        assert (row["ready"], row["reason"]) == (True, "Ready")
        await gateway.declare([model], models={**names, "free": "deepseek/r1:free"})
        row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
        assert (row["ready"], row["reason"]) == (True, "ModelNotListed")
        assert row["message"].endswith("does not list `deepseek/r1:free`")
        for name in ("chat", "gpt", "free"):
            assert (await gateway.ask("r1", model=name)).status == 200


@in_loop
async def test_a_model_that_wants_another_word_for_a_bound_is_asked_by_it(tmp_path: Path) -> None:
    message = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    model = Model(refuses={"max_tokens": message})
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], retry={"attempts": 1})
        for _ in range(2):
            assert (await gateway.ask("r1", max_tokens=50)).status == 200
        bounds = [(it.get("max_tokens"), it.get("max_completion_tokens")) for it in model.asked]
        assert bounds == [(50, None), (None, 50), (None, 50)]
        await gateway.declare([model], prices={"chat": {"outputPerMillion": 1e6}})
        await gateway.grant("r1", cap_usd=49.0)  # the bound counts for what is set aside
        refused = await gateway.ask("r1", max_tokens=50)
        assert (refused.status, refused.code) == (429, "BudgetExceeded")


@in_loop
async def test_a_wait_of_a_day_is_handed_on_at_once(tmp_path: Path) -> None:
    model = Model(faults=deque([Fault(429, retry_after="86400")]))
    async with hosting(tmp_path, model) as gateway:
        reply = await gateway.ask("r1")
        assert (reply.status, reply.headers["Retry-After"]) == (429, "86400")
        assert (await gateway.ask("r1")).status == 200
