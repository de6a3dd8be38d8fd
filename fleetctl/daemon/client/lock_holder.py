"""Finds the process that holds the store's lock, and checks that it makes progress. Called by
clients of the controller, and by `down --force`.

Asks the kernel, never a pid file: the lock shows that a process holds it, /proc which one. Without
/proc both are unknown, and no process counts as hung. Imports the standard library alone, for `get`
and `--help` load it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.state_paths import LOCK

_STOPPED = ("T", "t")


class LockHolder(NamedTuple):
    """The holder of the lock. boot, begun: of the process that wrote the line; empty without a
    line."""

    pid: int | None
    boot: str = ""
    begun: str = ""  # clock ticks since boot, as in /proc


class ProcessPulse(NamedTuple):
    """The state of a process in /proc at one moment."""

    state: str  # one letter, as in `ps`
    cpu_ticks: int
    begun: str

    @property
    def stopped(self) -> bool:
        return self.state in _STOPPED


def read_lock_holder(home: Path) -> LockHolder | None:
    """Returns the holder of the store's lock; None without one.

    The file is empty after an orderly end, so it is read without taking the lock.
    """
    import fcntl

    try:
        with open(home / LOCK, "rb") as lock:
            words = lock.read(200).decode("ascii", "replace").split()
            if not words:
                return None
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = int(words[0]) if words[0].isdigit() else None
        return LockHolder(pid, *words[1:3])
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None


def read_pulse(pid: int) -> ProcessPulse | None:
    """Returns the state; None where it is unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything; all later fields are plain words.
    fields = text.rpartition(")")[2].split()
    return ProcessPulse(fields[0], int(fields[11]) + int(fields[12]), fields[19])


def is_same(holder: LockHolder, seen: ProcessPulse) -> bool:
    """Returns true where the present process is the one that wrote the lock's line: of this boot,
    begun then."""
    return bool(holder.boot and holder.boot == boot_id() and holder.begun == seen.begun)


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "-"


def kernel_says(home: Path, pid: int) -> bool | None:
    """Returns true where the kernel's own list of locks names this process; None where it names no
    process."""
    try:
        found = (home / LOCK).stat()
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    rows = [words for words in map(str.split, lines) if len(words) > 5 and words[1] == "FLOCK"]
    owners = {words[4] for words in rows if words[5] == place}
    if owners:
        return str(pid) in owners
    return None
