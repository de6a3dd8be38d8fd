"""Locks and sockets in a supervisor's directory: the holder of the lock, and a short path to the
socket.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetctl.guest.supervision.processes import is_held


@dataclass(frozen=True, slots=True)
class SupervisorHolder:
    """The present or last holder of a supervisor's lock."""

    supervisor: str
    boot: str
    mark_base: int


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """`path` in a form that fits a socket address (about 100 bytes), valid inside the block."""
    if sys.platform != "linux":
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def lock_is_free(directory: Path) -> bool:
    """Returns whether no supervisor serves this directory."""
    return not is_held(directory / "lock")


def last_holder(directory: Path) -> SupervisorHolder | None:
    """Returns the last supervisor that took the lock; None without a holder, or while it is just
    writing its name.
    """
    try:
        value = json.loads((directory / "lock").read_bytes())
        return SupervisorHolder(str(value["keeper"]), str(value["boot"]), int(value["mark_base"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def boot_id() -> str:
    """Returns a name of this boot of the machine; "" where the system has no such name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
