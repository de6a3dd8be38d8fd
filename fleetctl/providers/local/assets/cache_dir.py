"""Directories below $FLEETCTL_HOME/local that serve again: each has a lock file beside it, whose
time is its last use.

A user of a directory holds the lock together with others for a moment, to see that it is there and
to note the use; its builder or remover holds the lock alone. So no directory goes in the moment in
which a user chooses it.
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


def mark_used(thing: Path, sign: Path) -> bool:
    """Notes that it is used now. False where it is not there, which `sign` shows, or is being built
    or removed.
    """
    with _lock_entry(lock_of(thing), fcntl.LOCK_SH) as held:
        if not held or not sign.exists():
            return False
        os.utime(lock_of(thing))
        return True


def used_s(thing: Path) -> float:
    """Returns when it was used last, in seconds since the epoch; 0.0 if it is not there."""
    for path in (lock_of(thing), thing):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0


def let_go(thing: Path, *, known_s: float) -> bool:
    """Removes it, unless it was used after known_s, or is being built. It goes by one rename: a
    kill leaves it whole, or already out of reach.
    """
    doomed = thing.with_name(f"{REMOVING}{thing.name}")
    with _lock_entry(lock_of(thing), fcntl.LOCK_EX) as held:
        if not held or used_s(thing) > known_s:
            return False
        remove_tree(str(doomed))  # of a removal that was killed in the midst
        if thing.exists():
            thing.rename(doomed)
    remove_tree(str(doomed))
    return not doomed.exists()


@contextmanager
def _lock_entry(path: Path, how: int) -> Iterator[bool]:
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
