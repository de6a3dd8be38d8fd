"""Things below $FLEETCTL_HOME/local that serve again: each has a lock file beside it, whose time
says when it was used last.

Who uses one holds the lock together with others for a moment, to see that it is there and to note
the use; who builds one or takes it away holds it alone. So nothing goes in the moment in which
somebody decides to use it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.providers.local.supervisor.run.cleaning import remove_tree

REMOVING = ".removing-"


def lock_of(thing: Path) -> Path:
    return thing.with_name(f"{thing.name}.lock")


def use(thing: Path, sign: Path) -> bool:
    """Note that it is used now. False where it is not there, which `sign` tells, or somebody builds
    it or takes it away.
    """
    with _held(lock_of(thing), fcntl.LOCK_SH) as held:
        if not held or not sign.exists():
            return False
        os.utime(lock_of(thing))
        return True


def used_s(thing: Path) -> float:
    """When it was used last, in seconds since the epoch; 0.0 of what is not there."""
    for path in (lock_of(thing), thing):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0


def let_go(thing: Path, *, known_s: float) -> bool:
    """Remove it, unless it was used after known_s, or somebody builds it. It goes by one rename: a
    kill leaves it whole, or nobody finds it any more.
    """
    doomed = thing.with_name(f"{REMOVING}{thing.name}")
    with _held(lock_of(thing), fcntl.LOCK_EX) as held:
        if not held or used_s(thing) > known_s:
            return False
        remove_tree(str(doomed))  # of one that was killed in the midst
        if thing.exists():
            thing.rename(doomed)
    remove_tree(str(doomed))
    return not doomed.exists()


@contextmanager
def _held(path: Path, how: int) -> Iterator[bool]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)
