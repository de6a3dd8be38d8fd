"""Finds the files of a failed task in its work directory, which stays until its object is deleted
or its `ttlSecondsAfterFinished` has passed. Reads, and removes no file.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.rundir.journal_runs import JournalRuns


def find_work_dir(
    home: Path,
    uid: str,
    run: str,
) -> Path | None:
    """Returns the directory in which the run began, as it left it; None without any file left."""
    layout = LocalLayout(home)
    seen = JournalRuns(layout.home, "local").end_of(uid, run)
    message = seen.ending.kept if seen is not None and seen.ending is not None else ""
    place = layout.work(uid) / message
    inside = bool(message) and ".." not in Path(message).parts and not Path(message).is_absolute()
    if inside and place.is_dir():
        return place
    return None
