"""Short names for the runs' temporary directories, which lie deep below the state directory.

The path of a Unix socket may have 107 bytes, 103 on macOS, and the kernel counts the text that it
is given: a symlink in /tmp suffices. Python's multiprocessing adds 32 bytes to $TMPDIR and Ray 66,
so it may have 41.
"""

from __future__ import annotations

import os
import stat

from fleetctl.guest.journal.digest import sha256

TOP = "/tmp"  # in namespaces the runs' own; else what is made there is checked
DIGITS = 10


def prepare_names(supervisor: str) -> str:
    """Returns a directory for the names of this supervisor's runs; "" where it cannot be made.

    supervisor: the supervisor's own directory, which names it: the next supervisor there finds it
    again.
    """
    path = _names_dir(supervisor)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # of a supervisor that was killed, or of somebody who wants to be us
        return path if _is_ours(path) else ""
    except OSError:
        return ""
    return path


def short_name(
    directory: str,
    work: str,
    temporary: str,
) -> str:
    """Returns a short name of `temporary`, or its own where no short one can be made. Fixed when a
    run took it away: the next run in the same work directory counts on it.
    """
    short = f"{directory}/{os.path.basename(work)}"
    try:
        if directory and not (os.path.islink(short) and os.readlink(short) == temporary):
            if os.path.lexists(short):
                os.unlink(short)
            os.symlink(temporary, short)
    except OSError:
        return temporary
    if directory:
        return short
    return temporary


def remove_names(supervisor: str) -> None:
    """Removes the names that `prepare_names` and `short_name` made, if any."""
    path = _names_dir(supervisor)
    try:
        if not _is_ours(path):
            return
        for one in os.listdir(path):
            os.unlink(f"{path}/{one}")
        os.rmdir(path)
    except OSError:
        return  # a run has put a file there; only a name is wasted


def _names_dir(supervisor: str) -> str:
    return f"{TOP}/f{sha256(supervisor.encode()).hexdigest()[:DIGITS]}"


def _is_ours(path: str) -> bool:
    """A directory, not a link to one, that only we can write to."""
    found = os.lstat(path)
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
    return private and found.st_uid == os.geteuid()
