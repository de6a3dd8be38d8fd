"""Ends the sandboxes of interpreters whose programs were killed, with all that were below them.

Called by fleetctl/interpreter before a program's first sandbox, by the controller's sweep and by
`fleetctl orphans`. It touches nothing of a program that lives.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import cast

from fleetctl.common.errors import FleetctlError
from fleetctl.providers.contract.session import EndSession
from fleetctl.specs.builtin import SORTS
from fleetctl.stores.interpreters import (
    LOST,
    PROGRAM_ENDED,
    STARTING,
    InterpreterRun,
    InterpreterRuns,
)
from fleetctl.wiring.plugins import part, plugin_of

log = logging.getLogger("fleetctl.interpreters")

# A request that was on its way when its program was killed may still make a sandbox.
LATE_S = 60.0


async def sweep(home: Path) -> list[InterpreterRun]:
    """What was ended, or found gone, each confirmed. One that cannot be asked for is met again by
    the next sweep. Raises StoreError when the records cannot be read.
    """
    runs = InterpreterRuns(home)
    ended = []
    for run in runs.left():
        try:
            there = await _ender(run)(home, run.name, run.native)
        except (FleetctlError, ModuleNotFoundError) as error:
            extra = {"sandbox": run.name, "provider": run.provider, "error": str(error)}
            log.warning("sandbox of a killed program not ended", extra=extra)
            continue
        if not there and run.state == STARTING and run.created_at_s > time.time() - LATE_S:
            continue
        runs.ended(run.name, LOST, PROGRAM_ENDED, None)
        ended.append(run)
    return ended


def _ender(run: InterpreterRun) -> EndSession:
    """Raises ModuleNotFoundError where the provider's SDK is not there any more."""
    if run.provider not in SORTS or not plugin_of(run.provider).session_end:
        raise ModuleNotFoundError(name=run.provider)
    return cast(EndSession, part(plugin_of(run.provider).session_end))
