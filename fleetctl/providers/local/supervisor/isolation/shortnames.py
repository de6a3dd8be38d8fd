"""Short names for the runs' temporary directories, which lie deep below the state directory.

The path of a Unix socket may have 107 bytes, 103 on macOS, and the kernel counts the text that it
is given: a symlink in /tmp suffices. Python's multiprocessing adds 32 bytes to $TMPDIR and Ray 66,
so it may have 41.
"""

from __future__ import annotations

import os
import stat

from fleetctl.guest.journal.digest import sha256

TOP = "/tmp"  # noqa: S108 - in namespaces the runs' own; else what is made there is checked
DIGITS = 10


def prepare(supervisor: str) -> str:
    """A directory for the names of this supervisor's runs; "" where there can be none.

    supervisor: the supervisor's own directory, which names it: the next supervisor there finds it
    again.
    """
    path = _path(supervisor)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # of a supervisor that was killed, or of somebody who wants to be us
        return path if _is_ours(path) else ""
    except OSError:
        return ""
    return path


def name(directory: str, work: str, temporary: str) -> str:
    """A short name of `temporary`, or its own where none can be made. Mended when a run took it
    away: the next one in the same work directory counts on it.
    """
    short = f"{directory}/{os.path.basename(work)}"
    try:
        if directory and not (os.path.islink(short) and os.readlink(short) == temporary):
            if os.path.lexists(short):
                os.unlink(short)
            os.symlink(temporary, short)
    except OSError:
        return temporary
    return short if directory else temporary


def remove(supervisor: str) -> None:
    """What `prepare` and `name` made. Nothing happens when there is nothing."""
    path = _path(supervisor)
    try:
        if not _is_ours(path):
            return
        for one in os.listdir(path):
            os.unlink(f"{path}/{one}")
        os.rmdir(path)
    except OSError:
        return  # a run has put something there; it is short of nothing but a name


def _path(supervisor: str) -> str:
    return f"{TOP}/f{sha256(supervisor.encode()).hexdigest()[:DIGITS]}"


def _is_ours(path: str) -> bool:
    """A directory, not a link to one, that only we can write to."""
    found = os.lstat(path)
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
    return private and found.st_uid == os.geteuid()
