"""Frees what the runs of a resource left on this machine. Called by providers in a thread."""

from __future__ import annotations

import shutil
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.providers.paths import checked, jobs_dir

KEPT = ("runs", "builds")  # journals and logs, and what leads to logs of builds
INTERPRETERS = "interpreters"  # their image builds, beside the objects'; no sweep is about those


def any_left(jobs: Path) -> bool:
    """Whether some object has anything there: only then may its provider hold something of ours."""
    return jobs.is_dir() and any(one.name != INTERPRETERS for one in jobs.iterdir())


def remove(home: Path, provider: str, uid: str, *, keep_logs: bool) -> None:
    """Idempotent. Raises Unavailable when something cannot be removed."""
    job = jobs_dir(home, provider) / checked(uid)
    if not job.exists():
        return
    for path in job.iterdir() if keep_logs else [job]:
        if keep_logs and path.name in KEPT:
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(
                f"the scratch space of `{uid}` cannot be removed completely: {error.strerror}",
                hint=f"look at {path}",
            ) from error
