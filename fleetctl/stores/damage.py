"""Writes the messages about a store that is damaged or gone, and about the backup that would fix
it. Has hardly any imports: the CLI's read paths come through here.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.stores.codes import APPLICATION_ID, SCHEMA_VERSION

BACKUP_AGAIN = "`fleetctl restore FILE` puts back what `fleetctl backup FILE` wrote"


def must_be_ours(
    path: Path | str,
    application: int,
    version: int,
) -> None:
    """Raises StoreError for the database of another program, or of a newer fleetctl."""
    if application != APPLICATION_ID:
        raise StoreError(
            f"`{path}` is a database of another program",
            hint="set FLEETCTL_HOME to the state directory of fleetctl, or to one of its own",
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"`{path}` has schema version `{version}`; "
            f"this fleetctl knows versions up to `{SCHEMA_VERSION}`",
            hint="use the newer fleetctl that wrote it; nothing was changed",
        )


def damaged_error(path: Path | str, finding: str) -> StoreError:
    return StoreError(
        f"`{path}` is damaged: {finding}",
        hint=f"{way_back(Path(path).parent.parent)}; nothing was written to the file",
    )


def missing_error(home: Path, store_id: str) -> StoreError:
    note = home / places.STORE_MARKER
    return StoreError(
        f"`{home / places.STATE_DB}` is gone or empty, and `{note}` says that store `{store_id}` "
        "was here",
        hint=f"{way_back(home)}; or remove `{note}` to begin a new store, while what the old one "
        "started may still run",
    )


def is_missed(home: Path) -> str:
    """Returns the id of the store that was here, by the note beside it; empty where there was
    none.
    """
    try:
        words = (home / places.STORE_MARKER).read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ""
    if words:
        return words[0]
    return ""


def way_back(home: Path) -> str:
    """Returns a sentence with the command that puts back the newest backup, where one is known."""
    try:
        known = json.loads((home / places.LAST_BACKUP).read_text(encoding="utf-8"))
        file = str(known["file"])
        at_s = float(known["at_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return BACKUP_AGAIN
    if "://" not in file and not os.path.exists(file):
        return BACKUP_AGAIN
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
    return f"`fleetctl restore {file}` puts back the backup of {when}"
