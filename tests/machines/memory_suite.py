"""A task that takes more memory than it asked for, on machines without a limit of their own."""

from __future__ import annotations

from fleetctl.providers.rundir.journal_runs import MEMORY_HINT
from tests.contracts.provider_worlds import World, python, script

# Mapped and never touched: only a limit of each process can see it.
AT_ONCE = "held = bytearray(1 << 30)\nimport time\ntime.sleep(600)"
# None of them is over the limit alone.
ONE = "python3 -c 'held = b\"x\" * 60_000_000; import time; time.sleep(600)'"
TOGETHER = f"{ONE} & {ONE} & {ONE} & wait"


async def end_for_memory(world: World, how: str) -> None:
    resources = {"memory": "128Mi"}
    template = python(AT_ONCE, resources=resources)
    if how == "together":
        template = script(TOGETHER, resources=resources)
    seen = await world.run(template)
    assert (seen.ok, seen.infrastructure, seen.reason) == (False, False, "OOMKilled")
    assert "resources.memory is 128Mi" in seen.message
    assert seen.hint == MEMORY_HINT
