"""Where journals and logs are. Names become parts of paths here, checked, and nowhere else.

Standard library only: the CLI's read paths come through here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetctl.errors import FleetctlError

RUNS = "runs"  # of journals and logs, in a resource's directory
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def jobs_dir(home: Path, provider: str) -> Path:
    """One directory a resource. Links resolved: namespaces see real paths only."""
    return Path(os.path.realpath(home)) / checked(provider) / "jobs"


def runs_dir(home: Path, provider: str, uid: str) -> Path:
    """Journals (`<run>.jsonl`) and logs (`<run>.log`) of the runs of one resource."""
    return jobs_dir(home, provider) / checked(uid) / RUNS


def journal_path(runs: Path, run: str) -> Path:
    return runs / f"{checked(run)}.jsonl"


def checked(name: str) -> str:
    """`name`, which becomes one part of a path. Raises FleetctlError when it could be more than
    that.
    """
    if not _NAME.fullmatch(name):
        raise FleetctlError(
            f"`{name[:80]!a}` cannot be the name of a file; letters, digits, `.`, `_` and `-` can"
        )
    return name


def make_private(path: Path) -> Path:
    """Make a directory, and all above it, that only we can enter."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    return path
