"""What a failed task left in its work directory, which stays until its object is deleted or its
`ttlSecondsAfterFinished` has passed. Reads, and removes nothing.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.local.paths import Layout
from fleetctl.providers.rundir.reading import Runs


def kept(home: Path, uid: str, run: str) -> Path | None:
    """Where the run began, as it left it; None where nothing of it is there."""
    layout = Layout(home)
    seen = Runs(layout.home, "local").end_of(uid, run)
    message = seen.ending.kept if seen is not None and seen.ending is not None else ""
    place = layout.work(uid) / message
    inside = bool(message) and ".." not in Path(message).parts and not Path(message).is_absolute()
    return place if inside and place.is_dir() else None
