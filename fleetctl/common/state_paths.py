"""Returns the state directory, and the path of every file below it; checks who owns that directory,
and the process at a socket in it.

Root counts as the user: it can read and write everything anyway. The imports stay few, for every
reading command of the CLI loads this file.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

from fleetctl.common.errors import StoreError, UsageError

STORE = "store"  # the directory that one controller locks
STATE_DB = "store/state.db"
EVENTS_DB = "store/events.db"
LOCK = "store/lock"
INTERPRETERS_DB = "interpreters/runs.db"  # sandboxes that programs made, with no controller
ACCESS_DB = "access/access.db"  # tokens of the server of a team, and the audit of its use
WAITS_DB = "access/waits.db"  # the waits of agents that outlive their request
BALLAST = "store/ballast"  # given up when the disk is full, so that stops can still be recorded
CHANGES = "store/changes"  # how many changes the store has had, so that lost ones are missed
STORE_MARKER = "store-id"  # beside store/, so that a removed store is missed
LAST_BACKUP = "last-backup.json"  # where the newest copy of the store is
RESTORED = "restored.json"  # the store was restored, and the providers have not been asked since
COMMITS = "commits"  # cached facts about commits of repositories that manifests name
WRITTEN = "written"  # which files of this machine verbs wrote, and how those were then
RETENTION = "retention.json"  # from when on the default limits of finished work apply
TRACES = "traces.jsonl"  # spans that no collector has confirmed
SOCKET = "controller.sock"
# The shortest limit of the platforms we know (macOS 104, Linux 108), less the final zero.
SOCKET_PATH_BYTES_MAX = 103
LOG = "controller.log"
CONTROLLER = "controller.json"
LOCAL = "local"  # sandboxes, volumes and environments of the provider `local`


def find_state_dir() -> Path:
    """Returns `$FLEETCTL_HOME`, `$XDG_STATE_HOME/fleetctl` or `~/.local/state/fleetctl`; absolute.

    Raises UsageError when the machine has no home directory configured.
    """
    try:
        if chosen := os.environ.get("FLEETCTL_HOME"):
            return Path(chosen).expanduser().absolute()
        state = os.environ.get("XDG_STATE_HOME", "")
        # By the XDG rules a relative value is ignored.
        base = Path(state)
        if not base.is_absolute():
            base = Path.home() / ".local" / "state"
        return base / "fleetctl"
    except RuntimeError as error:
        raise UsageError(
            "the state directory is not known: this user has no home directory",
            hint="set FLEETCTL_HOME to a directory on a local disk",
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            "FLEETCTL_HOME is a relative path, and the current directory is gone",
            hint="set FLEETCTL_HOME to an absolute path",
        ) from error


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
