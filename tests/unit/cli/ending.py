"""The end of a home that commands were tried on: one that waits for work starts a controller, and
that begins what the store says. It would go on for as long as that lives, beside all other tests.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from fleetctl.daemon.reach.client import NotRunning, ask
from fleetctl.daemon.reach.patience import Unanswered
from fleetctl.daemon.reach.spawn import holder
from tests.contracts.local_worlds import stop_supervisors


def end(home: Path) -> None:
    while holder(home) is not None:
        with suppress(NotRunning, Unanswered):  # it is coming up, or leaving
            ask(home, {"verb": "shutdown"})
        time.sleep(0.05)
    stop_supervisors(home)
