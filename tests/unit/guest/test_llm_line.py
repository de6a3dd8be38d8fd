"""The way of `fleetctl_llm` to the gateway: connections, and counts that are the whole task's."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import Gateway, living


@dataclass
class Counter:
    """A gateway that keeps counts alone: what it was asked, and by how many connections."""

    url: str = ""
    connections: int = 0
    asked: list[tuple[str, Any]] = field(default_factory=list)
    replies: dict[str, Any] = field(default_factory=dict)
    ends_after: bool = False  # it closes each connection without a word about that


@contextmanager
def counting(again: Counter | None = None) -> Iterator[Counter]:
    """again: one that was there, at the same port."""
    counter, lock = again or Counter(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with lock:
                counter.connections += 1

        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            with lock:
                counter.asked.append((self.path, json.loads(data) if data else None))
            reply = counter.replies.get(path)
            text = json.dumps(reply or {"error": "down"}).encode()
            self.send_response(200 if reply else 503)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = counter.ends_after

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what pytest shows is of the tests."""

    port = int(counter.url.rpartition(":")[2] or 0)
    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        counter.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield counter
        finally:
            server.shutdown()
            thread.join()


ANSWER = {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}
CHAT = "/v1/chat/completions"


def test_the_share_is_of_the_whole_task_as_the_gateway_counts_it(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process of 16 sees few calls, and would never tell."""
    with counting() as gateway:
        monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
        gateway.replies["/fallbacks"] = {"calls": 100, "fallbacks": 5}
        assert llm.llm_query("hi", on_error="original") == "hi"
        gateway.replies["/fallbacks"] = {"calls": 100, "fallbacks": 6}
        with pytest.raises(llm.TooManyFallbacks, match=r"^6 of 100 calls"):
            llm.llm_query("hi", on_error="original")
        monkeypatch.setenv("FLEETCTL_LLM_MAX_FALLBACK_SHARE", "0.5")
        assert llm.llm_query("hi", on_error="original") == "hi"
        assert [body for path, body in gateway.asked if path == "/fallbacks"] == [{"count": 1}] * 3


def test_fallbacks_are_told_of_the_endpoint_that_failed(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting() as gateway:
        monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
        monkeypatch.setenv("FLEETCTL_LLM_MAX_FALLBACK_SHARE", "1")
        gateway.replies["/limits"] = {"endpoint": "vectors"}
        gateway.replies["/fallbacks"] = {"calls": 2000, "fallbacks": 1500}
        zeros = llm.embed(["a"] * 1500, model="embed", on_error={"vector": [0.0]})
        assert zeros == [[0.0]] * 1500
        told = [body for path, body in gateway.asked if path == "/fallbacks"]
        assert told == [
            {"endpoint": "vectors", "count": 1000},
            {"endpoint": "vectors", "count": 500},
        ]


def test_more_prompts_than_the_limit_allows_are_refused_before_the_first(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting() as gateway:
        monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
        gateway.replies[CHAT] = ANSWER
        gateway.replies["/limits"] = {"endpoint": "small", "calls_used": 3, "calls_allowed": 5}
        with pytest.raises(llm.CallRefused, match="small: callsPerTask: 3 used, 3 asked, 5 allow"):
            llm.llm_query_batched(["a", "b", "c"], model="a b")
        assert gateway.asked == [("/limits?model=a%20b", None)]
        assert llm.llm_query_batched(["a", "b"]) == ["yes", "yes"]


def test_connections_are_kept_and_one_that_was_closed_is_made_anew(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting() as gateway:
        monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
        gateway.replies[CHAT] = ANSWER
        assert [llm.llm_query("hi") for _ in range(5)] == ["yes"] * 5
        assert gateway.connections == 1
        gateway.ends_after = True
        assert [llm.llm_query("hi") for _ in range(3)] == ["yes"] * 3
        assert gateway.connections == 3


def test_a_gateway_that_is_started_anew_is_waited_for(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting() as gateway:
        gateway.replies[CHAT] = ANSWER
    monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
    with ExitStack() as later:

        def sleep(seconds: float) -> None:
            later.enter_context(counting(gateway))

        monkeypatch.setattr("fleetctl_llm_line.time.sleep", sleep)
        assert llm.llm_query("hi") == "yes"


def test_a_gateway_that_stays_away_is_an_error_with_its_address(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting() as gateway:
        pass
    monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
    monkeypatch.setattr("fleetctl_llm_line.RESTART_S_MAX", 0.0)
    with pytest.raises(RuntimeError, match=f"^{gateway.url}/v1 cannot be reached: "):
        llm.llm_query("hi")


def test_a_forked_process_has_connections_of_its_own(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting() as gateway:
        monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
        gateway.replies[CHAT] = ANSWER
        llm.llm_query("hi")
        child = os.fork()
        if child == 0:
            os._exit(0 if llm.llm_query("hi") == "yes" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert llm.llm_query("hi") == "yes"
        assert gateway.connections == 2


def reaching(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_LLM_URL", gateway.url)
    monkeypatch.setenv("OPENAI_API_KEY", gateway_token(gateway.key, "r1"))
    monkeypatch.setenv("FLEETCTL_LLM_MODEL", "chat")


def test_a_batch_outlives_the_gateway_that_it_asks(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fleetctl_llm_line.RESTART_S_MAX", 600.0)

    async def run() -> None:
        model = Model(slots=8)
        model.faults.extend([Fault("hang")] * 4)
        async with living(tmp_path, model) as gateway:
            reaching(gateway, monkeypatch)
            prompts = [f"p{number}" for number in range(12)]
            asking = asyncio.create_task(asyncio.to_thread(llm.llm_query_batched, prompts))
            while len(model.asked) < 8:
                await asyncio.sleep(0.01)
            await gateway.stop()
            await gateway.start()
            await gateway.declare([model])
            await gateway.grant("r1")
            assert await asking == [f"echo: {prompt}" for prompt in prompts]

    asyncio.run(run())


def test_the_gateway_refuses_a_batch_whole_and_counts_fallbacks(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def run() -> None:
        model = Model()
        async with hosting(tmp_path, model) as gateway:
            await gateway.declare([model], limits={"callsPerTask": 3}, retry={"attempts": 1})
            reaching(gateway, monkeypatch)
            await asyncio.to_thread(ask, model)
            assert (len(model.asked), (await gateway.used())["r1"]["fallbacks"]) == (3, 1)

    def ask(model: Model) -> None:
        with pytest.raises(llm.CallRefused, match="small: callsPerTask: 0 used, 4 asked, 3 allow"):
            llm.llm_query_batched(["a", "b", "c", "d"])
        assert model.asked == []
        model.faults.append(Fault(500))
        assert llm.llm_query("a", on_error="original") == "a"
        assert llm.llm_query_batched(["b", "c"]) == ["echo: b", "echo: c"]
        with pytest.raises(llm.CallRefused, match="callsPerTask: 3 used, 1 asked, 3 allowed"):
            llm.llm_query("d", on_error="original")

    asyncio.run(run())
