"""Which process holds the store's lock, and whether it still does anything. Called by whoever asks
the controller, and by `down --force`.

The kernel is asked, never a pid file: the lock tells that somebody holds it, /proc who that is.
Where there is no /proc, nothing is known and nobody is called hung. Imports the standard library
alone: `get` and `--help` come by.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.home import LOCK

_STOPPED = ("T", "t")


class Holder(NamedTuple):
    """boot, begun: of the process that wrote the line; empty where it wrote none."""

    pid: int | None
    boot: str = ""
    begun: str = ""  # clock ticks since boot, as /proc tells it


class Pulse(NamedTuple):
    """What /proc says of a process at one moment."""

    state: str  # one letter, as in `ps`
    cpu_ticks: int
    begun: str

    @property
    def stopped(self) -> bool:
        return self.state in _STOPPED


def held_by(home: Path) -> Holder | None:
    """Who holds the store's lock; None when nobody does.

    The file is empty after an orderly end, so nothing is locked to find out.
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
        return Holder(pid, *words[1:3])
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None


def pulse(pid: int) -> Pulse | None:
    """None where nothing can be known of it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything; all that follows it are plain words.
    fields = text.rpartition(")")[2].split()
    return Pulse(fields[0], int(fields[11]) + int(fields[12]), fields[19])


def is_same(holder: Holder, seen: Pulse) -> bool:
    """The process that is there is the one that wrote the lock's line: of this boot, begun then."""
    return bool(holder.boot and holder.boot == boot_id() and holder.begun == seen.begun)


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "-"


def kernel_says(home: Path, pid: int) -> bool | None:
    """Whether the kernel's own list of locks names this process; None where it names none."""
    try:
        found = (home / LOCK).stat()
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    rows = [words for words in map(str.split, lines) if len(words) > 5 and words[1] == "FLOCK"]
    owners = {words[4] for words in rows if words[5] == place}
    return str(pid) in owners if owners else None
