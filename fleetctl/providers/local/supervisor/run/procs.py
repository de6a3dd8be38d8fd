"""Finding and ending the processes of a run, however they hide.

Every run's processes carry a mark that survives exec, setsid, double forks and a cleared
environment: their hard limit on file locks, which Linux has ignored since 2.4.25 and only a
privileged process could raise again. Called by the supervisor, and (by path of the mark) by the
provider after a supervisor was killed.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Optional

from fleetctl.guest.supervision.processes import send_signal

RLIMIT_LOCKS = 10
_LIMIT_LINE = b"Max file locks"
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


def mark_of(pid: int) -> int:
    """The mark of a process; 0 for one without, or gone."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    start = text.find(_LIMIT_LINE)
    hard = text[start : text.find(b"\n", start)].split()[4:5]
    if hard and hard[0].isdigit():
        return int(hard[0])
    return 0


def list_processes() -> list[int]:
    """Returns every process that this one can see."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def find_marked(low: int, high: int) -> list[int]:
    """The living processes whose mark is in [low, high)."""
    return [pid for pid in list_processes() if low <= mark_of(pid) < high and not is_zombie(pid)]


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        send_signal(pid, signal.SIGKILL)


def is_zombie(pid: int) -> bool:
    fields = _read_stat(pid)
    return fields is None or fields[0] == b"Z"


def map_parents() -> dict[int, int]:
    """pid -> parent, for every living process that can be seen."""
    found = {}
    for pid in list_processes():
        fields = _read_stat(pid)
        if fields is not None and fields[0] != b"Z":
            found[pid] = int(fields[1])
    return found


def resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _read_stat(pid: int) -> Optional[list[bytes]]:
    """Fields of /proc/<pid>/stat from the state on: [state, parent, ...]."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


_PAGE = os.sysconf("SC_PAGE_SIZE")
