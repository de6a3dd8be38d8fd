"""Names the paths of journals and logs. Names become parts of paths here, checked, and nowhere
else.

Standard library only: the CLI's read paths come through here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.specs.builtin import BUILT_IN

ACCOUNTS = "accounts"  # of the providers that somebody declared beside those that are built in
RUNS = "runs"  # of journals and logs, in a resource's directory
_IN_CLUSTER = "in-cluster"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def serves_cluster(home: Path) -> bool:
    """Returns whether the objects of this state directory are custom resources of a cluster, in
    which each namespace has an owner.
    """
    return (home / _IN_CLUSTER).exists()


def note_cluster(home: Path) -> None:
    (make_private(home) / _IN_CLUSTER).touch(mode=0o600)


def provider_dir(home: Path, provider: str) -> Path:
    """The directory of all that a provider keeps on this machine. Declared ones have a directory of
    their own, so that no name of theirs hits another file of the state directory.
    """
    if provider in BUILT_IN:
        return home / checked_name(provider)
    return home / ACCOUNTS / checked_name(provider)


def providers_in(home: Path) -> list[str]:
    """Names of the providers that keep anything here."""
    found = [name for name in BUILT_IN if (home / name).is_dir()]
    declared = home / ACCOUNTS
    if declared.is_dir():
        found += [it.name for it in declared.iterdir() if it.is_dir() and _NAME.fullmatch(it.name)]
    return sorted(found)


def jobs_dir(home: Path, provider: str) -> Path:
    """The directory that holds one directory a resource. Links resolved: namespaces see real paths
    only.
    """
    return provider_dir(Path(os.path.realpath(home)), provider) / "jobs"


def runs_dir(
    home: Path,
    provider: str,
    uid: str,
) -> Path:
    """Returns the directory of journals (`<run>.jsonl`) and logs (`<run>.log`) of a resource's
    runs.
    """
    return jobs_dir(home, provider) / checked_name(uid) / RUNS


def journal_path(runs: Path, run: str) -> Path:
    return runs / f"{checked_name(run)}.jsonl"


def checked_name(name: str) -> str:
    """`name`, which becomes one part of a path. Raises FleetctlError when it could be more than
    that.
    """
    if not _NAME.fullmatch(name):
        raise FleetctlError(
            f"`{name[:80]!a}` cannot be the name of a file; letters, digits, `.`, `_` and `-` can"
        )
    return name


def make_private(path: Path) -> Path:
    """Makes a directory, and all above it, that only we can enter."""
    if path.is_dir():
        return path  # as for all runs of a resource but its first
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    return path
