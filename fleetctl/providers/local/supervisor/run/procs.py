"""Finding and ending the processes of a run, however they hide.

Called by the supervisor, and (by the marks of its runs) by the provider after a supervisor was
killed.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Optional

from fleetctl.guest.supervision.processes import list_processes, mark_of, read_stat, send_signal

# A mark is supervisor * RUNS_PER_SUPERVISOR + run; 2**62 stays below what the kernel takes for
# "unlimited".
RUNS_PER_SUPERVISOR = 2**24
SUPERVISORS = 2**38


def list_children() -> Optional[list[int]]:
    """Returns the direct children of this process, or None where the kernel does not list them."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return None


def list_living_children(among: Callable[[int], bool]) -> list[int]:
    """Returns the direct children of this process that live, of those that `among` is true for."""
    dead: set[int] = set()
    while True:
        born = [pid for pid in list_children() or () if among(pid)]
        zombies = {pid for pid in born if is_zombie(pid)}
        if zombies <= dead:
            return [pid for pid in born if pid not in zombies]
        # One that died after the list was read left its own children to us: they are in the next.
        dead = zombies


def find_marked(low: int, high: int) -> list[int]:
    """The living processes whose mark is in [low, high)."""
    return [pid for pid in list_processes() if low <= mark_of(pid) < high and not is_zombie(pid)]


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        send_signal(pid, signal.SIGKILL)


def is_zombie(pid: int) -> bool:
    fields = read_stat(pid)
    return fields is None or fields[0] == b"Z"


def map_parents() -> dict[int, int]:
    """pid -> parent, for every living process that can be seen."""
    found = {}
    for pid in list_processes():
        fields = read_stat(pid)
        if fields is not None and fields[0] != b"Z":
            found[pid] = int(fields[1])
    return found
