"""A session's directory: locked while somebody uses it, filled before the driver starts.

Used by session.py. What a killed host left behind is removed when the next room is made.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.providers.contract.session import SessionRequest
from fleetctl.providers.local import locks
from fleetctl.providers.local.assets import git as gitsource
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import checked, make_private
from fleetctl.providers.sources import git

WITHOUT_REPOSITORY = "daytona-workspace"  # as the directory is called there


class Room:
    """Owns the directory and its lock; the guard process holds the same lock."""

    def __init__(self, layout: Layout, name: str) -> None:
        top = make_private(layout.root / "sessions")
        self.path = top / checked(name)
        self.work = self.path / "work"
        self.driver = self.path / "program" / "driver.py"
        with _held(top):
            doomed = [one for one in top.iterdir() if one.is_dir() and locks.lock_is_free(one)]
            make_private(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.lock = os.open(self.path / "lock", flags, 0o600)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        for one in doomed:
            remove_tree(str(one))

    def place(self, layout: Layout, request: SessionRequest) -> Path:
        """Where the directory is that the order wants mounted."""
        assert request.place is not None
        return layout.volume(request.place.volume) if request.place.volume else self.path / "place"

    async def fill(self, layout: Layout, request: SessionRequest) -> str:
        """Make what the session starts with; the absolute path of its workspace, or "".

        Raises Refused or Unavailable when the repository cannot be had.
        """
        make_private(self.work)
        make_private(self.driver.parent)
        self.driver.write_text(request.driver, encoding="utf-8")
        if request.place is not None:
            make_private(self.place(layout, request))
        workspaces = self.work / "workspace"
        if request.repository is not None:
            git.check(request.repository)
            top = make_private(workspaces / git.directory_name(request.repository.url))
            await gitsource.clone(request.repository, top)
            return str(top)
        return str(make_private(workspaces / WITHOUT_REPOSITORY)) if request.workspace else ""

    def close(self) -> None:
        """Remove it. Idempotent. Needs no thread: those are gone when the interpreter ends."""
        if self.lock >= 0:
            remove_tree(str(self.path))
            os.close(self.lock)
            self.lock = -1


@contextmanager
def _held(top: Path) -> Iterator[None]:
    """Hold the lock of all rooms, so that none is seen between its making and its locking."""
    lock = os.open(top / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
