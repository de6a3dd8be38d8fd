"""Ends, while the controller runs, the sandboxes that killed programs left of their interpreters.

Called by serve.py. Without a controller the next program that uses an interpreter does the same.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from fleetctl.common.errors import FleetctlError

log = logging.getLogger("fleetctl.daemon")


async def sweep_forever(home: Path, *, every_s: float) -> None:
    from fleetctl.wiring.interpreters import sweep_interpreters

    while True:
        try:
            for run in await sweep_interpreters(home):
                log.warning("sandbox of a killed program ended", extra={"sandbox": run.name})
        except FleetctlError as error:
            log.warning("sweep refused", extra={"error": str(error)})
        await asyncio.sleep(every_s)
