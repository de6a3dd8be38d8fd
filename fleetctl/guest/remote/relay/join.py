"""The verb `relay`: joins the relay of this sandbox for a run, and is its line: copies stdin to the
relay and the relay's messages to stdout. Losing this process loses no request.
"""

from __future__ import annotations

import _socket
import os
import select
import time

from fleetctl.guest.remote.relay.keeper import SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

BEGIN_S, LOOK_S = 60.0, 0.05  # until the relay listens: its run may be about to begin
READ_BYTES = 256 * 1024
NOBODY = 5  # the exit code when there is no relay


def join(run: str) -> int:
    """Returns the exit code when either side has closed."""
    relay = _connect_relay()
    if relay is None:
        return NOBODY
    relay.sendall(run.encode() + b"\n")
    poll = select.poll()
    for handle in (0, relay.fileno()):
        poll.register(handle, select.POLLIN)
    while True:
        for handle, _ in poll.poll():
            data = os.read(handle, READ_BYTES)
            if not data:
                return 0
            if handle == 0:
                relay.sendall(data)
            else:
                _write_all(data)


def _connect_relay() -> Optional[_socket.socket]:
    until_s = time.monotonic() + BEGIN_S
    while True:
        relay = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            relay.connect(SOCKET)
        except OSError:
            relay.close()
        else:
            return relay
        if time.monotonic() > until_s:
            return None
        time.sleep(LOOK_S)


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
