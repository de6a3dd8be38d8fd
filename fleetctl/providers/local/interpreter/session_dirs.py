"""Makes a session's directory: locked while it is used, filled before the driver starts.

Used by local_session.py. Directories that a killed host left are removed when the next one is made.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.providers.contract.session import SessionRequest
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.assets import git_checkout as gitsource
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import checked_name, make_private
from fleetctl.providers.sources import git

WITHOUT_REPOSITORY = "daytona-workspace"  # as the directory is called there


class SessionDir:
    """Owns the directory and its lock; the guard process holds the same lock."""

    def __init__(self, layout: LocalLayout, name: str) -> None:
        top = make_private(layout.root / "sessions")
        self.path = top / checked_name(name)
        self.work = self.path / "work"
        self.driver = self.path / "program" / "driver.py"
        with _lock_all(top):
            doomed = [
                one for one in top.iterdir() if one.is_dir() and supervisor_locks.lock_is_free(one)
            ]
            make_private(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.lock = os.open(self.path / "lock", flags, 0o600)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        for one in doomed:
            remove_tree(str(one))

    def place(self, layout: LocalLayout, request: SessionRequest) -> Path:
        """Returns the directory that the order wants mounted."""
        assert request.place is not None
        if request.place.volume:
            return layout.volume(request.place.volume)
        return self.path / "place"

    async def fill(self, layout: LocalLayout, request: SessionRequest) -> str:
        """Makes the files that the session starts with; returns the absolute path of its workspace,
        or "".

        Raises Refused or Unavailable when the repository cannot be had.
        """
        make_private(self.work)
        make_private(self.driver.parent)
        self.driver.write_text(request.driver, encoding="utf-8")
        if request.place is not None:
            make_private(self.place(layout, request))
        workspaces = self.work / "workspace"
        if request.repository is not None:
            git.check_source(request.repository)
            top = make_private(workspaces / git.directory_name(request.repository.url))
            await gitsource.clone_commit(request.repository, top)
            return str(top)
        if request.workspace:
            return str(make_private(workspaces / WITHOUT_REPOSITORY))
        return ""

    def close(self) -> None:
        """Removes it. Idempotent. Needs no thread: those are gone when the interpreter ends."""
        if self.lock >= 0:
            remove_tree(str(self.path))
            os.close(self.lock)
            self.lock = -1


@contextmanager
def _lock_all(top: Path) -> Iterator[None]:
    """Holds the lock of all directories, so that none is seen between its making and its
    locking.
    """
    lock = os.open(top / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
