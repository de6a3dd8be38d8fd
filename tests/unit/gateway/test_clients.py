"""Unmodified programs with the `openai` and the `ollama` client."""

import asyncio
from pathlib import Path

import ollama
import openai
import pytest

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Model, embedding
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import in_loop

HI = [{"role": "user", "content": "say it"}]


@in_loop
async def test_the_openai_client_chats_streams_and_embeds(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], limits={"callsPerTask": 3})
        token = gateway_token(gateway.key, "r1")
        client = openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=token)
        chat = await client.chat.completions.create(model="chat", messages=HI)  # type: ignore[arg-type]
        assert chat.choices[0].message.content == "echo: say it"
        stream = await client.chat.completions.create(  # type: ignore[call-overload]
            model="chat", messages=HI, stream=True
        )
        parts = [chunk.choices[0].delta.content async for chunk in stream]
        assert parts == ["echo:", "say", "it", None]
        rows = await client.embeddings.create(model="chat", input=["b"], encoding_format="float")
        assert rows.data[0].embedding == embedding("b")
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="chat", messages=HI)  # type: ignore[arg-type]
        assert (await gateway.used())["r1"]["refused"] == 1  # the client did not ask again


@in_loop
async def test_the_openai_client_asks_by_responses_and_they_are_counted(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], prices={"chat": {"outputPerMillion": 1e6}})
        token = gateway_token(gateway.key, "r1")
        client = openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=token)
        turns = [{"role": "user", "content": "hi"}, {"role": "user", "content": "say it"}]
        found = await client.responses.create(model="chat", input=turns)  # type: ignore[arg-type]
        assert found.output_text.endswith("say it'}")
        stream = await client.responses.create(model="chat", input="say it", stream=True)
        parts = [it.delta async for it in stream if it.type == "response.output_text.delta"]
        assert "".join(parts) == "echo: say it "
        row = (await gateway.used())["r1"]
        assert (row["calls"], row["tokens_in"] + row["tokens_out"]) == (2, model.tokens)
        assert row["usd"] == row["tokens_out"]
        await gateway.grant("r1", cap_usd=row["usd"] + 49.0)
        with pytest.raises(openai.RateLimitError, match=r"\$50.0000 asked at worst"):
            await client.responses.create(model="chat", input="x", max_output_tokens=50)
        with pytest.raises(openai.BadRequestError, match="leave `background` out"):
            await client.responses.create(model="chat", input="x", background=True)


@pytest.mark.parametrize("stream", [False, True])
def test_messages_are_asked_with_their_own_header_and_are_counted(
    tmp_path: Path, stream: bool
) -> None:
    """As the clients of Anthropic's protocol do."""

    async def test() -> None:
        model = Model()
        async with hosting(tmp_path, model) as gateway:
            await gateway.declare([model])
            headers = {"x-api-key": gateway_token(gateway.key, "r1"), "anthropic-version": "1"}
            body = {"model": "chat", "max_tokens": 9, "messages": HI, "stream": stream}
            url = f"{gateway.url}/v1/messages"
            async with gateway.tasks.post(url, json=body, headers=headers) as reply:
                assert reply.status == 200 and b"say" in await reply.read()
            assert model.heads[-1]["anthropic-version"] == "1"
            assert "x-api-key" not in model.heads[-1]
            row = (await gateway.used())["r1"]
            assert row["tokens_in"] + row["tokens_out"] == model.tokens

    asyncio.run(test())


@in_loop
async def test_models_that_nobody_declared_are_those_that_the_server_lists(tmp_path: Path) -> None:
    model = Model(models=("tiny", "org/big"))
    async with hosting(tmp_path, model) as gateway:
        token = gateway_token(gateway.key, "r1")
        client = openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=token)
        assert [it.id for it in (await client.models.list()).data] == ["chat"]
        assert (await client.models.retrieve("chat")).owned_by == "fleetctl"
        await gateway.declare([model], models={})
        assert [it.id for it in (await client.models.list()).data] == ["tiny", "org/big"]
        assert (await client.models.retrieve("org/big")).id == "org/big"
        with pytest.raises(openai.NotFoundError, match="has a model `nope`"):
            await client.models.retrieve("nope")
        assert model.asked == [] and await gateway.used() == {}


@in_loop
async def test_the_ollama_client_shows_models_by_the_names_of_tasks(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([], servers=[{"url": model.url, "api": "ollama"}])
        client = ollama.AsyncClient(host=f"{gateway.url}/t/{gateway_token(gateway.key, 'r1')}")
        assert (await client.show("chat")).capabilities == ["completion"]
        assert [it.model for it in (await client.ps()).models] == ["tiny"]
        await gateway.declare([model])
        with pytest.raises(ollama.ResponseError, match="it has no such server"):
            await client.show("chat")


@in_loop
async def test_the_ollama_client_chats_streams_and_embeds(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], api="ollama")
        token = gateway_token(gateway.key, "r1")
        client = ollama.AsyncClient(host=f"{gateway.url}/t/{token}")
        chat = await client.chat(model="chat", messages=HI)
        assert chat.message.content == "echo: say it"
        parts = [p.message.content async for p in await client.chat("chat", HI, stream=True)]
        assert parts == ["echo:", "say", "it", ""]
        assert (await client.embed("chat", "b")).embeddings == [embedding("b")]
        assert [m.model for m in (await client.list()).models] == ["chat"]
