"""A process that runs task after task while its sandbox is open: receives each order, and redirects
its output between two tasks. Runs in the forked child.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple

    from fleetctl.guest.task.surroundings import Surroundings

CHANNEL = 3  # the descriptor between a task and its supervisor
RECEIVE_BYTES = 1024 * 1024


def serve(
    exit_code: int,
    run: Callable[[str], int],
    tell: Callable[[dict[str, Any]], None],
    surroundings: Surroundings,
) -> int:
    """Runs task after task until the supervisor closes the channel; returns the last exit code.

    exit_code: of the task that has just ended. run: runs the order in a line of the supervisor, and
    returns its exit code. tell: sends an event to the supervisor. surroundings: as they were before
    the first task.
    """
    import _socket

    channel = _socket.socket(fileno=os.dup(CHANNEL))
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    while True:
        surroundings.withdraw()
        os.dup2(null, 1)
        os.dup2(null, 2)
        tell({"e": "done", "exit": exit_code})
        received = _receive_order(channel)
        if received is None:
            return 0
        line, output = received
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        surroundings.restore()
        exit_code = run(line)


def _receive_order(channel: Any) -> Optional[Tuple[str, int]]:
    """Returns the next order and the descriptor of its output; None when no more will come."""
    import _socket

    data, rights, _, _ = channel.recvmsg(RECEIVE_BYTES, _socket.CMSG_SPACE(4))
    if not data:
        return None
    parts = [data]
    while not parts[-1].endswith(b"\n"):
        parts.append(channel.recv(RECEIVE_BYTES))
        if not parts[-1]:
            return None
    return b"".join(parts).decode(), int.from_bytes(rights[0][2][:4], sys.byteorder)
