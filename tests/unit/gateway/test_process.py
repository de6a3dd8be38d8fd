"""The gateway as a process before an emulated server: limits, usage, what a kill leaves."""

import asyncio
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Fault, Model

LIFE_S = 20.0


class Gateway:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def start(self) -> None:
        # A port file of the life before is a port that no one listens at yet.
        (self.directory / "sock").unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, "-m", "fleetctl.gateway", self.directory])
        async with asyncio.timeout(LIFE_S):
            while not (self.directory / "sock").exists():
                await asyncio.sleep(0.01)
        self.key = (self.directory / "key").read_bytes()
        port = (self.directory / "port").read_text().strip()
        self.url = f"http://127.0.0.1:{port}"
        socket = str(self.directory / "sock")
        self.control = aiohttp.ClientSession("http://x", connector=aiohttp.UnixConnector(socket))
        self.tasks = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def stop(self) -> None:
        await self.control.close()
        await self.tasks.close()
        self.process.kill()
        self.process.wait()

    async def declare(self, servers: list[Model], **spec: Any) -> None:
        rows = [{"url": s.url + "/v1", "slots": s.slots} for s in servers]
        full = {"servers": rows, "models": {"chat": "tiny"}, **spec}
        row = {"name": "small", "namespace": "default", "generation": 1, "spec": full, "key": ""}
        await (await self.control.put("/endpoints", json={"endpoints": [row]})).read()

    async def grant(self, *runs: str, usd_left: float | None = None) -> None:
        rows = [
            {
                "run": run,
                "object": f"batchjob/{run}",
                "namespace": "default",
                "index": 0,
                "attempt": 1,
                "endpoints": ["small"],
                "usd_left": usd_left,
            }
            for run in runs
        ]
        await (await self.control.put("/grants", json={"grants": rows})).read()

    async def ask(self, run: str, prompt: str = "hi", headers: Any = None, **body: Any) -> Any:
        body = {"model": "chat", "messages": [{"role": "user", "content": prompt}], **body}
        token = {"Authorization": f"Bearer {gateway_token(self.key, run)}", **(headers or {})}
        url = self.url + "/v1/chat/completions"
        async with self.tasks.post(url, json=body, headers=token) as reply:
            await reply.read()
            return reply

    async def used(self) -> dict[str, Any]:
        reply = await (await self.control.get("/usage", params={"after": "0"})).json()
        return {row["run"]: row for row in reply["rows"]}


@asynccontextmanager
async def living(directory: Path, *servers: Model) -> AsyncIterator[Gateway]:
    for server in servers:
        await server.start()
    gateway = Gateway(directory)
    await gateway.start()
    try:
        await gateway.declare(list(servers))
        await gateway.grant("r1")
        yield gateway
    finally:
        await gateway.stop()
        for server in servers:
            await server.stop()


def in_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


@in_loop
async def test_a_task_asks_by_its_token_and_its_usage_is_told(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        assert (await gateway.ask("r1", "one two")).status == 200
        assert (await gateway.ask("stranger")).status == 401
        row = (await gateway.used())["r1"]
        assert [a["model"] for a in model.asked] == ["tiny"]
        assert (row["calls"], row["tries"], row["unpriced"], row["usd"]) == (1, 1, 1, 0)
        assert row["tokens_in"] + row["tokens_out"] == model.tokens
        assert row["reserved_usd"] == 0


@in_loop
async def test_a_call_over_the_limit_is_refused_and_not_worth_a_retry(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        await gateway.declare([model], limits={"callsPerTask": 3})
        replies = [await gateway.ask("r1") for _ in range(5)]
        assert [r.status for r in replies] == [200, 200, 200, 429, 429]
        assert replies[-1].headers["x-should-retry"] == "false"
        assert len(model.asked) == 3


@in_loop
async def test_a_call_that_may_cost_more_than_is_left_is_not_made(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        await gateway.declare([model], prices={"chat": {"outputPerMillion": 1e6}})
        await gateway.grant("r1", usd_left=5.0)
        assert (await gateway.ask("r1", max_tokens=6)).status == 429
        assert (await gateway.ask("r1", max_tokens=4)).status == 200
        assert (await gateway.used())["r1"]["usd"] == 2  # `echo: hi`


@in_loop
async def test_pages_and_foreign_hosts_and_long_bodies_are_refused(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        assert (await gateway.ask("r1", headers={"Origin": "http://x"})).status == 403
        assert (await gateway.ask("r1", headers={"Host": "evil.example"})).status == 403
        assert (await gateway.ask("r1", "x" * (16 * 2**20))).status == 413
        assert model.asked == []


@in_loop
async def test_a_busy_server_is_asked_again_and_each_try_counts(tmp_path: Path) -> None:
    model = Model(faults=deque([Fault(503), Fault(429)]))
    async with living(tmp_path, model) as gateway:
        await gateway.declare([model], retry={"backoff": {"initialSeconds": 0.01}})
        assert (await gateway.ask("r1")).status == 200
        row = (await gateway.used())["r1"]
        assert (row["calls"], row["tries"], len(model.asked)) == (1, 3, 3)


@in_loop
async def test_a_number_told_twice_is_asked_once(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        for _ in range(2):
            assert (await gateway.ask("r1", headers={"X-Fleetctl-Number": "7"})).status == 200
        assert len(model.asked) == 1


@in_loop
async def test_after_a_kill_the_ledger_accounts_what_the_server_counted(tmp_path: Path) -> None:
    model = Model(slots=8, answer_s=0.005)
    async with living(tmp_path, model) as gateway:
        limit = {"limits": {"callsPerTask": 400}}
        await gateway.declare([model], **limit)
        asking = [asyncio.create_task(gateway.ask("r1", f"p {i}")) for i in range(500)]
        while len(model.asked) < 100:
            await asyncio.sleep(0.001)
        gateway.process.kill()
        await asyncio.gather(*asking, return_exceptions=True)
        await gateway.stop()
        await gateway.start()
        row = (await gateway.used())["r1"]
        assert row["tokens_in"] + row["tokens_out"] >= model.tokens
        assert row["calls"] >= len(model.asked)
        await gateway.declare([model], **limit)
        await gateway.grant("r1")
        await asyncio.gather(*(gateway.ask("r1") for _ in range(400)))
        assert len(model.asked) <= 400


@in_loop
async def test_no_prompt_key_or_token_is_in_any_file(tmp_path: Path) -> None:
    model = Model()
    async with living(tmp_path, model) as gateway:
        await gateway.ask("r1", "canary-prompt")
        token = gateway_token(gateway.key, "r1").encode()
        for name in os.listdir(tmp_path):
            if (tmp_path / name).is_file():
                text = (tmp_path / name).read_bytes()
                assert b"canary-prompt" not in text and token not in text
