"""What queues cost a controller: a tick in which a run has ended, while 10,000 objects wait in 20
queues, and one in which something about every queue has changed.

A real engine on a store in memory; its provider takes no time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from fleetctl.apply.write import commit
from fleetctl.engine.kinds.queues import Queues
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from tests.bench.harness import Figure
from tests.unit.engine.fake_world import Fleet

QUEUES, OBJECTS = 20, 10_000
SHAPES = 20  # different asks in each queue
AT_ONCE = 4  # runs of each queue
TICKS = 100


def figures() -> Iterator[Figure]:
    deciding, ticks, everything = asyncio.run(_measure())
    what = f"{OBJECTS:,} objects wait in {QUEUES} queues"
    yield Figure(
        f"{what}: deciding who is next, CPU of a tick",
        f"{deciding:.1f} ms",
        "20 ms",
        deciding <= 20,
    )
    yield Figure(
        f"{what}: CPU of a tick in which a run ended, its passes too", f"{ticks:.1f} ms", "", None
    )
    yield Figure(
        f"{what}: the same when every queue changed at once",
        f"{everything:.1f} ms",
        "20 ms",
        everything <= 20,
    )


async def _measure() -> tuple[float, float, float]:
    async with Fleet() as fleet:
        _declare(fleet)
        for _ in range(OBJECTS // fleet.settings.keys_per_tick_max * 3):
            fleet.engine.ticks.make()
            await asyncio.sleep(0)
        await fleet.settle()
        queues = fleet.engine.parts.get(Queues)
        waiting = sum(it.waiting for it in queues._lines.lines.values())
        assert waiting > OBJECTS * 0.9, waiting
        spent: list[float] = []
        count = queues.count

        def timed(now_s: float) -> list[str]:
            began_s = time.process_time()
            found = count(now_s)
            spent.append(time.process_time() - began_s)
            return found

        queues.count = timed  # type: ignore[method-assign]
        ticks = []
        for _ in range(TICKS):
            order = next(box for box in fleet.local.boxes.values() if box.working)
            run = fleet.local.orders[order.working]
            fleet.local.finish(run.index, of=run.resource)
            for _ in range(10):
                began_s, known = time.process_time(), len(spent)
                fleet.engine.ticks.make()
                if len(spent) > known:
                    ticks.append(time.process_time() - began_s)
                await asyncio.sleep(0)
        everything = []
        for _ in range(10):
            queues._dirty |= queues._lines.lines.keys()
            began_s = time.process_time()
            count(fleet.clock.now_s())
            everything.append(time.process_time() - began_s)
        return max(spent) * 1e3, median(ticks) * 1e3, median(everything) * 1e3


def _declare(fleet: Fleet) -> None:
    manifests = [
        _manifest("Queue", f"q{it}", {"quotas": [{"resource": "gpus", "nominal": AT_ONCE * 8}]})
        for it in range(QUEUES)
    ]
    for number in range(OBJECTS):
        gpus = 1 + number // QUEUES % SHAPES
        spec = {
            "completions": 3,
            "queue": f"q{number % QUEUES}",
            "priority": number % 7,
            "template": {"command": ["work"], "resources": {"gpu": f"A100:{gpus}"}},
        }
        manifests.append(_manifest("BatchJob", f"job-{number}", spec))
    commit.apply_manifests(fleet.store, manifests, fleet.clock.now_s())


def _manifest(kind: str, name: str, spec: dict[str, object]) -> Manifest:
    checked = KINDS[kind].spec.model_validate(spec)
    return Manifest(kind, name, Metadata(name=name), checked, "bench.yaml", 1)
