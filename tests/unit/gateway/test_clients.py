"""Unmodified programs with the `openai` and the `ollama` client."""

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
