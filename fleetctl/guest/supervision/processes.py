"""Asks the kernel for a run's processes and their supervisor. Shared by all supervisors.

Every run's processes carry a mark that survives exec, setsid, double forks and a cleared
environment: their hard limit on file locks, which Linux has ignored since 2.4.25 and only a
privileged process could raise again.
"""

from __future__ import annotations

import fcntl
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGKILL = 9
_RLIMIT_LOCKS = 10
_LIMIT_LINE = b"Max file locks"
DATA_HEADROOM_BYTES = 256 * 1024 * 1024  # what is mapped and never touched, at the least


def send_signal(pid: int, number: int) -> bool:
    """Sends a signal; False when there is no such process. A negative pid is a process group."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def carry_mark(mark: int) -> None:
    """Marks this process and all that it begins. Raises OSError or ValueError where the kernel
    refuses, as it does for a mark above that of the process around.
    """
    import resource  # processes of runs alone need it

    resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))


def data_limit(memory: int) -> int:
    """Returns the bytes of data that one process may map where all of its run may use `memory`
    bytes: it fails at once, however fast it grows, and their sum is looked at now and then.
    """
    return memory + max(memory // 4, DATA_HEADROOM_BYTES)


def limit_data(size: int) -> None:
    """Limits the data of this process and of all that it begins, each by itself."""
    import resource  # processes of runs alone need it

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def directory_mark() -> int:
    """Returns the mark of the working directory, for a supervisor that has one of its own: above
    2**62 and so above all marks of local supervisors, which a run may start in turn.
    """
    import zlib

    data = os.fsencode(working_directory())
    return 1 << 62 | zlib.crc32(data) << 29 | zlib.crc32(data[::-1]) >> 3


def working_directory() -> str:
    """Returns the working directory, also where it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.readlink("/proc/self/cwd").replace(" (deleted)", "")


def mark_of(pid: int) -> int:
    """Returns the mark of a process; 0 for one without, or gone."""
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


def list_processes() -> List[int]:
    """Returns every process that this one can see."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def read_stat(pid: int) -> Optional[List[bytes]]:
    """Returns the fields of /proc/<pid>/stat from the state on: [state, parent, ...]; None for a
    process that has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


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


def adopt_orphans() -> bool:
    """Makes this process the parent of all that it begins and that lose theirs, from now on;
    returns whether it is. Called where ctypes is loaded, since few supervisors need it.
    """
    ctypes = sys.modules.get("ctypes")
    if ctypes is None or sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def has_children() -> bool:
    """Returns whether a process of this one lives; of all its processes, where it adopts them."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return False
    return True


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
