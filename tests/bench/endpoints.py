"""What the gateway costs a request, and how near it brings batches to what their servers allow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.harness import Figure
from tests.emulators.llm.server import Model
from tests.unit.gateway.test_process import Gateway, living

REQUESTS, AT_ONCE = 1000, 64
ANSWER_S = 0.1
ROUNDS = {16: 40, 256: 4}  # by prompts; a short one is easily disturbed


def figures() -> list[Figure]:
    return asyncio.run(_figures())


async def _figures() -> list[Figure]:
    found = []
    with tempfile.TemporaryDirectory() as name:
        async with living(Path(name), Model(slots=AT_ONCE)) as gateway:
            up_s = before_s = _cpu_s(gateway)
            room = asyncio.Semaphore(AT_ONCE)

            async def one(n: int) -> None:
                async with room:
                    await gateway.ask("r1", f"p {n}")

            await asyncio.gather(*map(one, range(REQUESTS)))
            each_ms = (_cpu_s(gateway) - before_s) / REQUESTS * 1000
            mib = _memory_mib(gateway)
        found.append(_at_most("gateway CPU a request", each_ms, 1.0, "ms"))
        found.append(_at_most(f"its memory after {REQUESTS:,} requests", mib, 60, "MB"))
        found.append(_at_most("CPU from its start to listening", up_s, 1.0, "s"))
    for prompts, slots, goal in ((16, (16,), 15.0), (256, (16,), 15.5), (256, (8, 8), 15.0)):
        ratio, direct = await _speed_up(prompts, slots)
        where = " + ".join(map(str, slots))
        what = f"{prompts} prompts of 100 ms on {where} slots, against one after another"
        measured = f"{ratio:.1f} times; {direct:.1f} without the gateway"
        found.append(Figure(what, measured, f"{goal:g} times", ratio >= goal))
    return found


async def _speed_up(prompts: int, slots: tuple[int, ...]) -> tuple[float, float]:
    """Through the gateway, and by the same client without it: what the machine allows. Each the
    best of some rounds, with connections made: others on the machine only make one slower.
    """
    with tempfile.TemporaryDirectory() as name, _servers(slots) as urls:
        async with living(Path(name)) as gateway:
            rows = [{"url": url, "slots": n} for url, n in zip(urls, slots, strict=True)]
            await gateway.declare([], servers=rows)
            rooms = [asyncio.Semaphore(n) for n in slots]
            body = {"model": "tiny", "messages": [{"role": "user", "content": "p"}]}

            async def ask(n: int) -> None:
                await gateway.ask("r1", f"p {n}")

            async def ask_itself(n: int) -> None:
                which = n % len(slots)
                url = urls[which] + "/v1/chat/completions"
                async with rooms[which], gateway.tasks.post(url, json=body) as reply:
                    await reply.read()

            return await _ratio(ask, prompts), await _ratio(ask_itself, prompts)


async def _ratio(ask: Callable[[int], Coroutine[Any, Any, None]], prompts: int) -> float:
    async def at_once(count: int) -> float:
        begun_s = time.monotonic()
        await asyncio.gather(*map(ask, range(count)))
        return time.monotonic() - begun_s

    await at_once(prompts)
    one_s = min([await at_once(1) for _ in range(8)])
    return one_s * prompts / min([await at_once(prompts) for _ in range(ROUNDS[prompts])])


@contextmanager
def _servers(slots: tuple[int, ...]) -> Iterator[list[str]]:
    """The emulated servers' URLs. A process of their own, as servers have: in one with the client
    they are what is measured."""
    command = [sys.executable, "-m", "tests.bench.endpoints", *map(str, slots)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None and it.stdout is not None
        yield it.stdout.readline().split()
        it.stdin.close()


async def _serve(slots: list[int]) -> None:
    servers = [await Model(slots=n, answer_s=ANSWER_S).start() for n in slots]
    sys.stdout.write(" ".join(server.url for server in servers) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


def _at_most(what: str, value: float, goal: float, unit: str) -> Figure:
    return Figure(what, f"{value:.2f} {unit}", f"{goal:g} {unit}", value <= goal)


def _cpu_s(gateway: Gateway) -> float:
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _memory_mib(gateway: Gateway) -> float:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    asyncio.run(_serve([int(text) for text in sys.argv[1:]]))
