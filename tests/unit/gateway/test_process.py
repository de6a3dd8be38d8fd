"""The gateway as a process before an emulated server: limits, usage, what a kill leaves."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Model

LIFE_S = 120.0  # against a hang alone
FAST = {"retry": {"backoff": {"initialSeconds": 0.01}}}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def code(self) -> str:
        """Of an error; empty of an answer."""
        return str(json.loads(self.raw).get("error", {}).get("code", ""))


class Gateway:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "fleetctl.gateway", self.directory])
        await self.connect()

    async def connect(self) -> None:
        async with asyncio.timeout(LIFE_S):
            while not await self._answers():
                await asyncio.sleep(0.01)
        self.key = (self.directory / "key").read_bytes()
        port = (self.directory / "port").read_text().strip()
        self.url = f"http://127.0.0.1:{port}"
        socket = str(self.directory / "sock")
        self.control = aiohttp.ClientSession("http://x", connector=aiohttp.UnixConnector(socket))
        # A connection that is kept may be closed by the gateway just as the next request begins.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self.tasks = aiohttp.ClientSession(connector=connector)

    async def _answers(self) -> bool:
        """A socket of the life before is one that nobody listens at."""
        try:
            _, writer = await asyncio.open_unix_connection(self.directory / "sock")
        except OSError:
            return False
        writer.close()
        return True

    async def disconnect(self) -> None:
        await self.control.close()
        await self.tasks.close()

    async def stop(self) -> None:
        await self.disconnect()
        self.process.kill()
        self.process.wait()

    async def declare(self, models: list[Model], /, **spec: Any) -> None:
        rows = [{"url": model.url + "/v1", "slots": model.slots} for model in models]
        full = {"servers": rows, "models": {"chat": "tiny"}, **FAST, **spec}
        row = {"name": "small", "namespace": "default", "generation": 1, "spec": full, "key": ""}
        await (await self.control.put("/endpoints", json={"endpoints": [row]})).read()

    async def grant(self, *runs: str, cap_usd: float | None = None, tree: str = "") -> Any:
        """All of them pay from one object, `uid`. What its calls have come to."""
        rows = [
            {
                "run": run,
                "tree": tree or run,
                "uid": "uid",
                "object": f"batchjob/{run}",
                "namespace": "default",
                "endpoints": ["small"],
            }
            for run in runs
        ]
        caps = [] if cap_usd is None else [{"uids": ["uid"], "usd": cap_usd}]
        reply = await self.control.put("/grants", json={"grants": rows, "caps": caps})
        return (await reply.json())["totals"]

    async def ask(self, run: str, prompt: str = "hi", headers: Any = None, **body: Any) -> Any:
        body = {"model": "chat", "messages": [{"role": "user", "content": prompt}], **body}
        token = {"Authorization": f"Bearer {gateway_token(self.key, run)}", **(headers or {})}
        url = self.url + "/v1/chat/completions"
        async with self.tasks.post(url, json=body, headers=token) as reply:
            return Reply(reply.status, reply.headers, await reply.read())

    async def get(self, run: str, path: str) -> Any:
        token = {"Authorization": f"Bearer {gateway_token(self.key, run)}"}
        return await (await self.tasks.get(self.url + path, headers=token)).json()

    async def post(self, run: str, path: str, body: Any) -> Any:
        token = {"Authorization": f"Bearer {gateway_token(self.key, run)}"}
        return await (await self.tasks.post(self.url + path, json=body, headers=token)).json()

    async def usage(self, after: int, wait_s: float = 0.0) -> Any:
        query = f"/usage?after={after}&wait={wait_s}"
        return await (await self.control.get(query)).json()

    async def used(self) -> dict[str, Any]:
        return {row["run"]: row for row in (await self.usage(0))["rows"]}


G = TypeVar("G", bound=Gateway)


def living(directory: Path, *servers: Model) -> AbstractAsyncContextManager[Gateway]:
    return before(Gateway(directory), *servers)


@asynccontextmanager
async def before(gateway: G, *servers: Model) -> AsyncIterator[G]:
    """Endpoint `small` of these servers, and a grant for run `r1`."""
    for server in servers:
        await server.start()
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
async def test_a_kill_amid_calls_pays_nothing_twice_and_forgets_nothing(tmp_path: Path) -> None:
    model, answered = Model(slots=8, answer_s=0.005), {}
    spec = {"limits": {"callsPerTask": 400}, "prices": {"chat": {"outputPerMillion": 1.0}}}

    async with living(tmp_path, model) as gateway:

        async def one(n: int) -> None:
            reply = await gateway.ask("r1", f"p {n}", headers={"X-Fleetctl-Number": str(n)})
            if reply.status == 200:
                answered[n] = reply.raw

        await gateway.declare([model], **spec)
        asking = [asyncio.create_task(one(n)) for n in range(500)]
        while len(model.asked) < 100:
            await asyncio.sleep(0.001)
        gateway.process.kill()
        await asyncio.gather(*asking, return_exceptions=True)
        await gateway.stop()
        asked, kept = len(model.asked), dict(answered)
        await gateway.start()
        row = (await gateway.used())["r1"]
        assert row["tokens_in"] + row["tokens_out"] >= model.tokens
        # What was in flight counts as asked, and what waited does not.
        assert asked <= row["calls"] <= asked + model.slots
        assert row["tokens_out"] <= model.tokens + model.slots * 4096
        await gateway.declare([model], **spec)
        assert (await gateway.grant("r1"))["uid"] == row["usd"] > 0
        await asyncio.gather(*(one(n) for n in kept))
        assert len(kept) > 50 and answered == kept and len(model.asked) == asked
        await asyncio.gather(*(one(n) for n in range(1000, 1400)))
        assert len(model.asked) == asked + 400 - row["calls"] <= 400


@in_loop
async def test_a_gateway_ends_when_its_directory_is_gone_though_tasks_may_ask(
    tmp_path: Path,
) -> None:
    home = tmp_path / "gateway"
    home.mkdir()
    async with living(home, Model()) as gateway:
        assert (await gateway.ask("r1")).status == 200
        shutil.rmtree(home)
        assert await asyncio.to_thread(gateway.process.wait, LIFE_S) == 0
