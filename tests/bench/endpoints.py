"""What the gateway costs a request, and how near it brings batches to what their servers allow."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests.bench.harness import Figure
from tests.emulators.llm.server import Model
from tests.unit.gateway.test_process import Gateway, living

REQUESTS, AT_ONCE = 1000, 64
ANSWER_S = 0.1
ROUNDS = 5


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
    for prompts, servers, goal in ((16, (16,), 15.0), (256, (16,), 15.5), (256, (8, 8), 15.0)):
        ratio = await _speed_up(prompts, servers)
        slots = " + ".join(map(str, servers))
        what = f"{prompts} prompts of 100 ms on {slots} slots, against one after another"
        reached = ratio >= goal
        found.append(Figure(what, f"{ratio:.1f} times", f"{goal:g} times", reached))
    return found


async def _speed_up(prompts: int, slots: tuple[int, ...]) -> float:
    """Against 16 of the same asked one after another in the same run, scaled. The best of some
    rounds, with connections made: others on the machine only make one slower.
    """
    servers = [Model(slots=n, answer_s=ANSWER_S) for n in slots]
    with tempfile.TemporaryDirectory() as name:
        async with living(Path(name), *servers) as gateway:

            async def at_once(count: int) -> float:
                begun_s = time.monotonic()
                await asyncio.gather(*(gateway.ask("r1", f"p {n}") for n in range(count)))
                return time.monotonic() - begun_s

            await at_once(2 * sum(slots))
            one_s = min([await at_once(1) for _ in range(16)])
            return one_s * prompts / min([await at_once(prompts) for _ in range(ROUNDS)])


def _at_most(what: str, value: float, goal: float, unit: str) -> Figure:
    return Figure(what, f"{value:.2f} {unit}", f"{goal:g} {unit}", value <= goal)


def _cpu_s(gateway: Gateway) -> float:
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _memory_mib(gateway: Gateway) -> float:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
