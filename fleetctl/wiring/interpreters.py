"""Ends the sandboxes of interpreters whose programs were killed, with all that were below them.

Called by fleetctl/interpreter before a program's first sandbox, by the controller's sweep and by
`fleetctl orphans`. It never touches a living program's sandboxes.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.stores.interpreters import (
    LOST,
    PROGRAM_ENDED,
    STARTING,
    InterpreterRun,
    InterpreterRuns,
)
from fleetctl.wiring.account_registry import session_ender

log = logging.getLogger("fleetctl.interpreters")

# A request that was on its way when its program was killed may still make a sandbox.
LATE_S = 60.0


async def sweep_interpreters(home: Path) -> list[InterpreterRun]:
    """Returns the runs ended, or found gone, each confirmed. A run of an unreachable provider is
    left to the next sweep. Raises StoreError when the records cannot be read.
    """
    runs = InterpreterRuns(home)
    ended = []
    for run in runs.left():
        try:
            there = await session_ender(run.provider, home)(home, run.name, run.native)
        except (FleetctlError, ModuleNotFoundError, OSError) as error:
            extra = {"sandbox": run.name, "provider": run.provider, "error": str(error)}
            log.warning("sandbox of a killed program not ended", extra=extra)
            continue
        if not there and run.state == STARTING and run.created_at_s > time.time() - LATE_S:
            continue
        runs.ended(run.name, LOST, PROGRAM_ENDED, None)
        ended.append(run)
    return ended
