"""Returns the state directory, and the path of every file below it. Read by all floors above;
creates no file.

Imports stay tiny: the CLI's read paths come through here.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.common.errors import UsageError

STORE = "store"  # the directory that one controller locks
STATE_DB = "store/state.db"
EVENTS_DB = "store/events.db"
LOCK = "store/lock"
INTERPRETERS_DB = "interpreters/runs.db"  # sandboxes that programs made, with no controller
ACCESS_DB = "access/access.db"  # tokens of the server of a team, and the audit of its use
BALLAST = "store/ballast"  # given up when the disk is full, so that stops can still be recorded
CHANGES = "store/changes"  # how many changes the store has had, so that lost ones are missed
STORE_MARKER = "store-id"  # beside store/, so that a removed store is missed
LAST_BACKUP = "last-backup.json"  # where the newest copy of the store is
RESTORED = "restored.json"  # the store was restored, and the providers have not been asked since
COMMITS = "commits"  # cached facts about commits of repositories that manifests name
WRITTEN = "written"  # which files of this machine verbs wrote, and how those were then
RETENTION = "retention.json"  # from when on the default limits of finished work apply
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
