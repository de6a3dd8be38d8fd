"""Checks the owner of a state directory, and of the process at a socket: before any request is sent
to a controller or any file is stored in a directory.

Called by the client of the socket, by its server, and by all code that makes state. Root counts as
oneself: it can read and write everything anyway.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

from fleetctl.common.errors import StoreError


def refuse_foreign(home: Path) -> None:
    """Raises StoreError for a state directory of another user, or one in which every user may
    replace files. A missing one has no owner.
    """
    try:
        found = home.stat()
    except OSError:
        return  # its user reports that
    if found.st_uid not in (os.geteuid(), 0):
        raise StoreError(
            f"the state directory `{home}` belongs to user `{found.st_uid}`, not to you"
            f" (`{os.geteuid()}`)",
            hint="set FLEETCTL_HOME to a directory of your own, or run this as that user",
        )
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise StoreError(
            f"every user of this machine may write to the state directory `{home}`",
            hint=f"chmod go-w {home}",
        )


def is_private(path: Path) -> bool:
    """Returns whether it is a directory, not a link to one, of this user, which no other user may
    enter: in a directory of all users anybody may have made it first.
    """
    found = path.lstat()
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
    return private and found.st_uid == os.geteuid()


def open_private(path: str, flags: int) -> int:
    """Opens files that their user alone may read, with any umask."""
    return os.open(path, flags, 0o600)


def deny_writes_of_others() -> None:
    """Has this process make no file that every user may write: a umask of 000 would have it."""
    mask = os.umask(0o077)
    os.umask(mask if mask & stat.S_IWOTH else mask | stat.S_IWGRP | stat.S_IWOTH)


def is_trusted_peer(connection: socket.socket) -> bool:
    """Returns True where our own user or root is at the other end, according to the kernel; where
    the kernel does not know, the directory's owner decides.
    """
    uid = _peer_of(connection)
    return uid is None or uid in (os.geteuid(), 0)


def _peer_of(connection: socket.socket) -> int | None:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return int(uid)
