"""Finds the process that holds the store's lock, waits for it as long as it makes progress, and
states the causes of a standstill that objects cannot show.

The kernel is asked, never a pid file: the lock shows that a process holds it, /proc which one.
Without /proc both are unknown, and no process counts as hung. A controller that is busy, or waits
for a slow server in a long request, is not hung: it replies to a ping, or uses its processor. One
that a signal has stopped, or that does neither, hangs.

Only the standard library is imported, for `get` and `--help` load this file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import FleetctlError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import LOCK
from fleetctl.common.text import byte_size

_STOPPED = ("T", "t")

STOPPED_S = 1.0  # a debugger, or a shell that resumes it at once, stops it for less
PING_AFTER_S = 3.0  # most replies come in milliseconds
HANGS_AFTER_S = 9.0  # reported within ten
_WANTS_ON = ("R", "D")  # it waits for its turn on a busy machine, or for the disk

# The store's own reserve comes back at four times its MiB; below that little can be written.
ROOM_BYTES_MIN = 4 << 20


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


class ControllerUnanswered(FleetctlError):
    """Raised where a controller listens and has not replied: it is very busy, hangs or has just
    ended."""


class ControllerHung(ControllerUnanswered):
    """Raised where it exists, holds the store, and makes no progress."""


def build_hung_error(pid: int | None, why: str) -> ControllerHung:
    who = f"the controller (pid {pid})" if pid else "the controller"
    on = f"`kill -CONT {pid}` lets it go on; " if pid and why.startswith("it is stopped") else ""
    return ControllerHung(
        f"{who} hangs: {why}",
        hint=f"{on}`fleetctl down --force` ends it, and running tasks go on",
    )


class ControllerTimeout:
    """One wait. `look` is called at least twice a second; it raises ControllerHung.

    answers: sends a short request on another connection, and returns true for a reply; None: the
    pending request is short itself.
    """

    def __init__(self, home: Path, answers: Callable[[float], bool] | None = None) -> None:
        self._home = home
        self._answers = answers
        self._began_s = self._heard_s = time.monotonic()
        self._first: ProcessPulse | None = None

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began_s

    def look(self) -> None:
        silent_s = time.monotonic() - self._heard_s
        if silent_s < STOPPED_S:
            return
        held = read_lock_holder(self._home)
        seen = read_pulse(held.pid) if held is not None and held.pid is not None else None
        if held is None or seen is None:
            return
        if seen.stopped:
            raise build_hung_error(
                held.pid, "it is stopped by a signal (SIGSTOP, or Ctrl-Z where it runs)"
            )
        if self._first is None or self._first.begun != seen.begun:
            self._first = seen
        if self._answers is not None and silent_s >= PING_AFTER_S:
            if self._answers(HANGS_AFTER_S - PING_AFTER_S):
                self._note_reply()
                return
            silent_s = time.monotonic() - self._heard_s
        if silent_s < HANGS_AFTER_S:
            return
        now = read_pulse(held.pid) if held.pid is not None else None
        idle = now is not None and now.cpu_ticks == self._first.cpu_ticks
        if now is not None and idle and now.state not in _WANTS_ON:
            raise build_hung_error(
                held.pid, f"it has not answered for {silent_s:.0f} s and does no work"
            )
        self._note_reply()  # it works: it is only busy

    def _note_reply(self) -> None:
        self._heard_s = time.monotonic()
        self._first = None


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
