"""What a killed supervisor may have left: found by its mark and ended, before its runs are called
gone.

With namespaces the kernel has ended everything with the supervisor; this waits until that is done.
Linux only; elsewhere a killed supervisor's processes cannot be told from others and are left to
their own time limits.
"""

from __future__ import annotations

import asyncio
import sys

from fleetctl.providers.local import locks
from fleetctl.providers.local.supervisor.run import procs

TRIES = 100
PAUSE_S = 0.02


async def gone(holder: locks.Holder | None) -> bool:
    """End whatever carries the holder's mark; False when something is still there after two
    seconds.
    """
    if holder is None or sys.platform != "linux" or holder.boot != locks.boot_id():
        return True
    for _ in range(TRIES):
        found = await asyncio.to_thread(_marked, holder.mark_base)
        if not found:
            return True
        procs.kill_all(found)
        await asyncio.sleep(PAUSE_S)
    return False


def _marked(base: int) -> list[int]:
    return procs.marked(base, base + procs.RUNS_PER_SUPERVISOR)
