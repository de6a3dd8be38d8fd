"""Processes of a run and who looks after them, asked of the kernel. Shared by all supervisors."""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple


def send(pid: int, number: int) -> bool:
    """False when there is no such process. A negative pid means the process group."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def ended() -> Iterator[Tuple[int, int]]:
    """(pid, wait status) of each child that has ended, ours or inherited; never waits."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def is_held(path: str | os.PathLike[str]) -> bool:
    """Whether a process has the exclusive lock of this file; False where there is no such file. Two
    that ask at once do not take each other for a holder.
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
