"""Finds processes of a killed supervisor by its mark and ends them, before its runs are called
gone.

With namespaces the kernel has ended everything with the supervisor; this waits until that is done.
Linux only; elsewhere a killed supervisor's processes cannot be recognized and are left to their own
time limits.
"""

from __future__ import annotations

import asyncio
import sys

from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.supervisor.run import procs

TRIES = 100
PAUSE_S = 0.02


async def end_leftovers(holder: supervisor_locks.SupervisorHolder | None) -> bool:
    """Ends all processes with the holder's mark; False when one is still there after two
    seconds.
    """
    if holder is None or sys.platform != "linux" or holder.boot != supervisor_locks.boot_id():
        return True
    for _ in range(TRIES):
        found = await asyncio.to_thread(_marked_pids, holder.mark_base)
        if not found:
            return True
        procs.kill_all(found)
        await asyncio.sleep(PAUSE_S)
    return False


def _marked_pids(base: int) -> list[int]:
    return procs.find_marked(base, base + procs.RUNS_PER_SUPERVISOR)
