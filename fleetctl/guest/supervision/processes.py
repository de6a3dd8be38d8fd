"""Asks the kernel for a run's processes and their supervisor. Shared by all supervisors."""

from __future__ import annotations

import fcntl
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def send_signal(pid: int, number: int) -> bool:
    """Sends a signal; False when there is no such process. A negative pid is a process group."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def reap_children() -> Iterator[Tuple[int, int]]:
    """Yields (pid, wait status) of each child that has ended, ours or inherited; never waits."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, or now if it has. Where it cannot (not
    Linux, or a Python without ctypes), the supervisor of the parent has to find this one.
    """
    if sys.platform != "linux":
        return
    try:
        import ctypes  # few runs need it, and every supervisor loads this file
    except ImportError:
        return
    ctypes.CDLL(None).prctl(
        _PR_SET_PDEATHSIG,
        _SIGKILL,
        0,
        0,
        0,
    )
    if os.getppid() != parent:
        os.kill(os.getpid(), _SIGKILL)


def is_held(path: str | os.PathLike[str]) -> bool:
    """Returns whether a process has the exclusive lock of this file; False for a missing file. Two
    callers at once do not take each other for a holder.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def is_removed(directory: int) -> bool:
    """Returns whether an open directory has been deleted. A moved one has not: processes that
    outlive their controller end when its state directory is deleted, and find it when it is moved.
    """
    return os.fstat(directory).st_nlink == 0
