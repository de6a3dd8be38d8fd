"""Frees the files that a resource's runs left on this machine. Called by providers in a thread."""

from __future__ import annotations

import shutil
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.providers.paths import checked_name, jobs_dir
from fleetctl.providers.rundir.shared_contents import contents_of, release_contents

KEPT = ("runs", "builds")  # journals and logs, and what leads to logs of builds
INTERPRETERS = "interpreters"  # their image builds, beside the objects'; no sweep is about those


def any_left(jobs: Path) -> bool:
    """Returns whether some object has files there: only then may its provider hold objects of
    ours.
    """
    return jobs.is_dir() and any(one.name != INTERPRETERS for one in jobs.iterdir())


def remove_job_files(
    home: Path,
    provider: str,
    uid: str,
    *,
    keep_logs: bool,
) -> None:
    """Idempotent. Raises Unavailable when something cannot be removed."""
    job = jobs_dir(home, provider) / checked_name(uid)
    if not job.exists():
        return
    contents = set() if keep_logs else contents_of(job)
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
    release_contents(job.parents[1], contents)
