"""Servers that only a proxy of the environment reaches."""

import asyncio
from pathlib import Path

import pytest

from fleetctl.common.proxies import is_loopback, proxy_of
from fleetctl.gateway.batching.batch_api import BatchApi
from fleetctl.gateway.rules.servers import Access
from tests.emulators.llm.batches import Batches
from tests.emulators.llm.server import Model
from tests.unit.gateway.hosted import hosting

FAR = "http://models.example.org"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_a_proxy_is_for_others_than_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    monkeypatch.setenv("https_proxy", "http://proxy:2")
    monkeypatch.setenv("NO_PROXY", ".internal,10.0.0.7:8000")
    urls = {
        FAR: "http://proxy:1",
        "https://api.openai.com": "http://proxy:2",
        "http://vllm.internal:8000": None,
        "http://10.0.0.7:8000": None,
        "http://10.0.0.7:9000": "http://proxy:1",
        "http://127.0.0.9:8000": None,
        "http://[::1]:8000": None,
        "http://localhost:11434": None,
    }
    assert {url: proxy_of(url) for url in urls} == urls
    assert not is_loopback("models.example.org")


def test_calls_looks_and_batches_go_by_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        proxy, near = Model(batches=Batches()), Model()
        async with hosting(tmp_path, proxy, near) as gateway:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            await gateway.declare([], servers=[{"url": FAR}])
            row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
            assert row["ready"]
            assert (await gateway.ask("r1")).status == 200
            server = gateway.endpoint.servers[0]
            assert await gateway.endpoint._ask(gateway.endpoint, server)
            assert await BatchApi(gateway.state.client, FAR, Access()).supports()
            assert len(proxy.asked) == 1
            await gateway.declare([near])
            assert (await gateway.ask("r1")).status == 200
            assert (len(proxy.asked), len(near.asked)) == (1, 1)

    asyncio.run(test())


def test_a_server_that_its_proxy_does_not_reach_is_told_with_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with hosting(tmp_path) as gateway:
            monkeypatch.setenv("HTTP_PROXY", "http://user:secret@127.0.0.1:9")
            await gateway.declare([], servers=[{"url": FAR}])
            row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
            assert row["message"] == f"{FAR} did not answer by the proxy 127.0.0.1"
            assert "NO_PROXY" in row["hint"] and "secret" not in str(row)

    asyncio.run(test())
