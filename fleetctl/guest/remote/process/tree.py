"""Finds the processes of a run, however they hide: by session, by parent and by a mark.

Called by attempt.py when a run does not end by itself, or leaves processes behind. There are two
marks: that of the sandbox's directory (see processes.py), which some kernels do not let a process
carry, and the run's name in the environment.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.supervision.processes import (
    directory_mark,
    list_processes,
    mark_of,
    resident_bytes,
    send_signal,
    working_directory,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

ENVIRON_BYTES_MAX = 1024 * 1024
READ_BYTES = 64 * 1024
KILL_LOOK_S = 0.005  # between two looks whether killed processes have ended
SLACK_S = 60.0  # between two counts of the same moment
LISTS_MAX = 50  # where other processes come and go all the time
PF_KTHREAD = 0x00200000


class Tree:
    """The processes of a run. Once seen, a process belongs to the run, whatever becomes of its
    parents.
    """

    def __init__(self, leader: int, runs: list[str], *, since_s: float = 0.0) -> None:
        """leader: the id of a group and a session, -1 when it has ended; runs: names that
        processes may carry; since_s: when the first of them began, as the machine's uptime, where
        the caller knows.
        """
        self._since_ticks = _oldest_start(since_s)
        self._leader = leader
        self._names = [b"\0FLEETCTL_RUN=%s\0" % run.encode() for run in runs]
        # Where processes of several sandboxes are seen, each has a directory of its own.
        self._place = f"\0FLEETCTL_PARAMS={working_directory()}/".encode()
        self._mark = directory_mark()
        self._seen: dict[int, int] = {}  # pid -> when it started
        self._group: set[int] = set()  # pids that are in the leader's group

    def living(self) -> list[int]:
        """Returns all living processes: one that is born during the search is in the next list,
        until a list is all known. One that becomes another program has no environment for a moment.
        """
        parents: dict[int, int] = {}
        starts: dict[int, int] = {}
        found = set()
        known = set()
        self._group = set()
        for _ in range(LISTS_MAX):
            fresh = [pid for pid in _list_processes() if pid not in known]
            if not fresh:
                break
            for pid in fresh:
                known.add(pid)
                stat = _read_stat(pid)
                if stat is None:
                    continue
                if stat[3] < self._since_ticks:
                    continue
                parents[pid], group, session, starts[pid] = stat
                if group == self._leader:
                    self._group.add(pid)
                seen = self._seen.get(pid) == starts[pid]
                environment = _read_environment(pid)
                if (
                    seen
                    or self._leader in (pid, group, session)
                    or self._marks(environment)
                    or mark_of(pid) == self._mark
                ):
                    found.add(pid)
                elif environment == b"":
                    known.remove(pid)
        found |= {pid for pid in parents if _is_descendant(pid, found, parents)}
        self._seen = {pid: starts[pid] for pid in found}
        return sorted(found)

    def send(self, number: int) -> None:
        """Sends a signal to all that live, each once."""
        # Searched first: without the leader, some could not be found any more.
        self._send(self.living(), number)

    def kill(self, *, within_s: float) -> bool:
        """Kills all that live; returns whether none is left. A search reads much of each process of
        the machine, so those that were found are waited for without one.
        """
        until_s = time.monotonic() + within_s
        while pids := self.living():
            self._send(pids, 9)
            while any(map(self._still_lives, pids)):
                if time.monotonic() > until_s:
                    return False
                time.sleep(KILL_LOOK_S)
        return True

    def _send(self, pids: list[int], number: int) -> None:
        if self._leader > 0:
            send_signal(-self._leader, number)
        for pid in pids:
            if pid not in self._group:
                send_signal(pid, number)

    def _still_lives(self, pid: int) -> bool:
        stat = _read_stat(pid)
        return stat is not None and stat[3] == self._seen.get(pid)

    def memory_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in self.living())

    def _marks(self, environment: bytes) -> bool:
        text = b"\0" + environment
        return self._place in text and any(name in text for name in self._names)


def _oldest_start(since_s: float) -> float:
    """Returns the start, in ticks as in /proc, of the oldest process that may belong to a run; 0.0
    where this process, which has just begun, shows that /proc counts from another moment.
    """
    stat = _read_stat(os.getpid())
    if not since_s or stat is None:
        return 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    mine_s, now_s = stat[3] / ticks, time.clock_gettime(time.CLOCK_BOOTTIME)
    known = since_s <= mine_s and abs(now_s - mine_s) < SLACK_S / 2
    return (since_s - SLACK_S) * ticks if known else 0.0


def _list_processes() -> list[int]:
    me = os.getpid()
    return [pid for pid in list_processes() if pid != me]


def _read_environment(pid: int) -> bytes:
    """Returns a process's environment; a lone zero when it may not be read."""
    try:
        return _read_whole(f"/proc/{pid}/environ")
    except OSError:
        return b"\0"


def _read_stat(pid: int) -> Optional[tuple[int, int, int, int]]:
    """Returns (parent, group, session, start); None for a zombie, a kernel thread, or a process
    that has ended.
    """
    try:
        fields = _read_whole(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields[0] in b"ZX" or int(fields[6]) & PF_KTHREAD:
            return None
        return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _read_whole(path: str) -> bytes:
    """Reads a file by three calls of the system: an open file of Python makes seven, and a search
    reads hundreds.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(handle, READ_BYTES)
        while len(part) == READ_BYTES and len(data) < ENVIRON_BYTES_MAX:
            part = os.read(handle, READ_BYTES)
            data += part
        return data
    finally:
        os.close(handle)


def _is_descendant(
    pid: int,
    found: set[int],
    parents: dict[int, int],
) -> bool:
    seen = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
        if pid in found:
            return True
    return False
