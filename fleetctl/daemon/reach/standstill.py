"""Why nothing moves on, where the objects themselves cannot say it: the disk is full, so that their
status is not written, or the controller is stopped. Called by get, describe and whoever waits.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.text import byte_size
from fleetctl.daemon.reach.holder import held_by, pulse
from fleetctl.daemon.reach.patience import hung

# The store's own reserve comes back at four times its MiB; below that little can be written.
ROOM_BYTES_MIN = 4 << 20


class Standstill(NamedTuple):
    why: str
    hint: str


def standstill(state_dir: Path) -> Standstill | None:
    """None while nothing is known that keeps everything from moving on."""
    held = held_by(state_dir)
    seen = pulse(held.pid) if held is not None and held.pid is not None else None
    if held is not None and seen is not None and seen.stopped:
        message = hung(held.pid, "it is stopped by a signal, and nothing moves on")
        return Standstill(str(message), message.hint)
    return _no_room(state_dir)


def _no_room(state_dir: Path) -> Standstill | None:
    try:
        disk = os.statvfs(state_dir)
    except OSError:
        return None
    free = disk.f_bavail * disk.f_frsize
    if free < ROOM_BYTES_MIN:
        left = f"{byte_size(free)} are left"
    elif disk.f_files and not disk.f_favail:
        left = "it takes no more files"
    else:
        return None
    return Standstill(
        f"the disk that holds `{state_dir}` is full ({left}):"
        " tasks and the controller cannot write",
        f"free some space; work goes on by itself. `du -sh {state_dir}/*` shows what is large",
    )
