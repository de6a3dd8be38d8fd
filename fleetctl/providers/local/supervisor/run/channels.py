"""The channel on which a worker takes one task after another."""

from __future__ import annotations

import os
import socket
from typing import Any

from fleetctl.guest.task.text import compact

HAND_OVER_S = 5.0  # for a worker that waits to read its next task


def both_ways() -> tuple[int, int]:
    """Two ends of a channel on which orders, with a descriptor each, can go to a worker."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def hand_over(
    channel: int,
    order: dict[str, Any],
    output: int,
) -> None:
    """Another task for a worker that waits for one."""
    data = (compact(order) + "\n").encode()
    with socket.socket(fileno=os.dup(channel)) as to_worker:
        to_worker.settimeout(HAND_OVER_S)
        sent = socket.send_fds(to_worker, [data], [output])
        if sent < len(data):
            to_worker.sendall(data[sent:])
    os.set_blocking(channel, False)
