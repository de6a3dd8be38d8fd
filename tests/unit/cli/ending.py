"""The end of a home that commands were tried on: one that waits for work starts a controller, and
that begins what the store says. It would go on for as long as that lives, beside all other tests.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from fleetctl.daemon.client.lock_holder import ControllerUnanswered
from fleetctl.daemon.client.socket_client import NotRunning, send_request
from fleetctl.daemon.client.spawn import find_holder_pid
from tests.contracts.local_worlds import stop_supervisors


def end(home: Path) -> None:
    while find_holder_pid(home) is not None:
        with suppress(NotRunning, ControllerUnanswered):  # it is coming up, or leaving
            send_request(home, {"verb": "shutdown"})
        time.sleep(0.05)
    stop_supervisors(home)
