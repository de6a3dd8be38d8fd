"""Where provider `local` keeps what below $FLEETCTL_HOME/local. Names are checked here and nowhere
else.

Standard library only: `logs.py` and the CLI's read paths come through here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetctl.errors import FleetctlError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Layout:
    """Every path of one state directory."""

    def __init__(self, home: Path) -> None:
        # Resolved once: in its namespaces a keeper sees real paths only.
        self.home = Path(os.path.realpath(home))
        self.root = self.home / "local"
        self.volumes = self.root / "volumes"
        self.environments = self.root / "envs"
        self.repositories = self.root / "git"
        self.keepers = self.root / "keepers"
        self.jobs = self.root / "jobs"
        self.gpus = self.root / "gpus"
        self.guests = self.root / "guest"

    def volume(self, name: str) -> Path:
        return self.volumes / checked(name)

    def job(self, uid: str) -> Path:
        return self.jobs / checked(uid)

    def runs(self, uid: str) -> Path:
        """Journals and logs; hidden from the runs themselves."""
        return self.job(uid) / "runs"

    def work(self, uid: str) -> Path:
        """Work directories, one a sandbox: what the runs see."""
        return self.job(uid) / "work"

    def journal(self, uid: str, run: str) -> Path:
        return self.runs(uid) / f"{checked(run)}.jsonl"

    def keeper(self, name: str) -> Path:
        return self.keepers / checked(name)


def keeper_name(uid: str, template_hash: str) -> str:
    return f"{checked(uid)}.{checked(template_hash)}"


def uid_of(handle: str) -> str:
    """The resource that a handle (`<uid>.<template hash>/<keeper>`) belongs to."""
    return handle.partition("/")[0].rpartition(".")[0]


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
