"""The causes of a standstill that objects cannot show themselves: the disk is full, so that their
status is not written, or the controller is stopped. Called by get, describe and waiting commands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.remote import REMOTE
from fleetctl.common.text import byte_size
from fleetctl.daemon.client.lock_holder import read_lock_holder, read_pulse
from fleetctl.daemon.client.timeouts import build_hung_error

# The store's own reserve comes back at four times its MiB; below that little can be written.
ROOM_BYTES_MIN = 4 << 20


class StallReason(NamedTuple):
    why: str
    hint: str


def find_stall_reason(state_dir: Path) -> StallReason | None:
    """Returns the cause; None without a known one that stops all work."""
    if REMOTE.get() is not None:
        return None
    held = read_lock_holder(state_dir)
    seen = read_pulse(held.pid) if held is not None and held.pid is not None else None
    if held is not None and seen is not None and seen.stopped:
        message = build_hung_error(held.pid, "it is stopped by a signal, and nothing moves on")
        return StallReason(str(message), message.hint)
    return _find_full_disk(state_dir)


def _find_full_disk(state_dir: Path) -> StallReason | None:
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
    return StallReason(
        f"the disk that holds `{state_dir}` is full ({left}):"
        " tasks and the controller cannot write",
        f"free some space; work goes on by itself. `du -sh {state_dir}/*` shows what is large",
    )
