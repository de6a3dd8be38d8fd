"""Where provider `local` keeps what below $FLEETCTL_HOME/local."""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.providers.paths import checked, jobs_dir, journal_path


class Layout:
    """Every path of one state directory."""

    def __init__(self, home: Path) -> None:
        # Resolved once: in its namespaces a supervisor sees real paths only.
        self.home = Path(os.path.realpath(home))
        self.root = self.home / "local"
        self.volumes = self.root / "volumes"
        self.environments = self.root / "envs"
        self.repositories = self.root / "git"
        self.supervisors = self.root / "keepers"
        self.tree = self.root / "tree"  # where supervisors mount theirs, each in its own namespace
        self.jobs = jobs_dir(self.home, "local")
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
        return journal_path(self.runs(uid), run)

    def supervisor(self, name: str) -> Path:
        return self.supervisors / checked(name)


def supervisor_name(uid: str, template_hash: str) -> str:
    return f"{checked(uid)}.{checked(template_hash)}"


def uid_of(handle: str) -> str:
    """The resource that a handle (`<uid>.<template hash>/<supervisor>`) belongs to."""
    return handle.partition("/")[0].rpartition(".")[0]
