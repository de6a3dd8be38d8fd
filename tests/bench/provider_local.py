"""Prints how many tiny Python tasks a second provider `local` starts, runs and reports, without an
engine.

Run it: `python tests/bench/provider_local.py [tasks] [in flight]`. The rate is of the whole path
start ->
notify -> observe; the controller's own CPU time is told apart, since the engine needs the rest of
that core.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from fleetctl.controllers.model import Ended
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.specs.blocks.template import Template

UID = f"bench-{os.getpid()}"  # ext4 places directories by their names: not the same place each time
CODE = "result = sum(range(1000))\nSUBMIT(index=index, total=result)"


async def run_tasks(
    provider: LocalProvider, ended: asyncio.Queue[str], count: int, width: int
) -> None:
    """Keep `width` tasks in flight until `count` have ended well."""
    template = Template(python=CODE)
    started, done, live = 0, 0, set[str]()

    async def start(index: int) -> None:
        name = f"run-{index}"
        order = RunRequest(
            run=name,
            sandbox=name,
            owner="bench",
            uid=UID,
            resource="batchjob/bench",
            index=index,
            attempt=1,
            template=template,
            template_hash="bench",
            params={"index": index},
            reusable=False,
        )
        await provider.start(order)

    while done < count:
        fresh = range(started, min(count, started + width - len(live)))
        live.update(f"run-{index}" for index in fresh)
        started += len(fresh)
        await asyncio.gather(*(start(index) for index in fresh))
        names = {await ended.get()}
        while not ended.empty():
            names.add(ended.get_nowait())
        refs = [RunRef(name, name, "", 0, UID) for name in names & live]
        for seen in await provider.observe(refs):
            if isinstance(seen, Ended):
                assert seen.ok, seen
                live.discard(seen.run)
                done += 1


async def main(count: int, width: int) -> None:
    home = Path(tempfile.mkdtemp(prefix="fleetctl-bench-", dir="/var/tmp"))
    ended: asyncio.Queue[str] = asyncio.Queue()
    provider = LocalProvider(home, store_id="bench", notify=ended.put_nowait)
    before_s, began_s = time.process_time(), time.perf_counter()
    await run_tasks(provider, ended, count, width)
    wall_s, own_s = time.perf_counter() - began_s, time.process_time() - before_s
    print(f"{count} tasks, {width} in flight: {count / wall_s:.0f} tasks/s, first start included")
    print(f"controller CPU: {own_s / count * 1e6:.0f} us a task")
    print(f"controller memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    await provider.remove_scratch(UID, keep_logs=False)
    await provider.close()
    shutil.rmtree(home)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    asyncio.run(main(*(numbers + [1000, 8][len(numbers) :])))
