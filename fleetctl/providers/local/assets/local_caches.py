"""The caches of provider `local`, environments and checkouts: directories that serve again, each
with a lock file beside it.

A user of a directory holds the lock together with others for a moment, to see that it is there
and to note the use; its builder or remover holds the lock alone. So no directory goes in the
moment in which a user chooses it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.providers.contract.plugin import YOUNG_S, CachedEntry
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.local_layout import LocalLayout, uid_of
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.rundir.build_logs import LINKS
from fleetctl.providers.rundir.kept_outputs import disk_usage

ENVIRONMENTS = "environments"
REPOSITORIES = "repositories"
WORK = "workDirectories"
PLAIN = "plain-"  # environments without packages: a few files
IN_USE = "in use"
YOUNG = "used within the last hour"

REMOVING = ".removing-"


class LocalCaches:
    """The caches that the provider's plugin row names; see providers/contract/plugin.py."""

    def __init__(self, home: Path) -> None:
        self._layout = LocalLayout(home)

    def listed(self, over: Collection[str], now_s: float) -> Iterator[CachedEntry]:
        used = self._environments_in_use(over)
        since_s = self._oldest_session_s()
        for path in _list_directories(self._layout.environments):
            if path.name.startswith(PLAIN):
                continue
            used_s = last_used_s(path)
            recent = since_s is not None and used_s >= since_s - YOUNG_S
            held = IN_USE if path.name in used or recent else ""
            yield _describe_cached(
                ENVIRONMENTS,
                path,
                used_s,
                held,
                now_s,
            )
        for path in _list_directories(self._layout.repositories):
            yield _describe_cached(
                REPOSITORIES,
                path,
                last_used_s(path),
                "",
                now_s,
            )
        for path in _list_directories(self._layout.supervisors):
            uid = uid_of(path.name)
            held = "" if uid in over else IN_USE
            yield CachedEntry(
                WORK,
                uid,
                uid,
                disk_usage(path),
                0.0,
                held,
            )

    def let_go(self, one: CachedEntry) -> bool:
        top = {
            ENVIRONMENTS: self._layout.environments,
            REPOSITORIES: self._layout.repositories,
        }[one.sort]
        thing = top / one.key
        if not let_go(thing, known_s=one.used_s):
            return False
        thing.with_suffix(".log").unlink(missing_ok=True)
        return True

    def _environments_in_use(self, over: Collection[str]) -> set[str]:
        """Returns the environments of unfinished objects: each object has a link to the log of
        every image that it uses.
        """
        found: set[str] = set()
        for job in _list_directories(self._layout.jobs):
            links = job / LINKS
            if job.name not in over and links.is_dir():
                found |= {Path(name).stem for name in os.listdir(links)}
        return found

    def _oldest_session_s(self) -> float | None:
        """Returns when the oldest session of an interpreter began; None without sessions."""
        rooms = _list_directories(self._layout.root / "sessions")
        return min(
            (it.stat().st_ctime for it in rooms if not supervisor_locks.lock_is_free(it)),
            default=None,
        )


def _describe_cached(
    sort: str,
    path: Path,
    used_s: float,
    held: str,
    now_s: float,
) -> CachedEntry:
    held = held or (YOUNG if used_s > now_s - YOUNG_S else "")
    return CachedEntry(
        sort,
        path.name,
        path.name,
        disk_usage(path),
        used_s,
        held,
    )


def _list_directories(top: Path) -> list[Path]:
    if not top.is_dir():
        return []
    return sorted(it for it in top.iterdir() if it.is_dir() and not it.is_symlink())


def lock_of(thing: Path) -> Path:
    return thing.with_name(f"{thing.name}.lock")


def mark_used(thing: Path, sign: Path) -> bool:
    """Notes that it is used now. False where it is not there, which `sign` shows, or is being built
    or removed.
    """
    with _lock_entry(lock_of(thing), fcntl.LOCK_SH) as held:
        if not held or not sign.exists():
            return False
        os.utime(lock_of(thing))
        return True


def last_used_s(thing: Path) -> float:
    """Returns when it was used last, in seconds since the epoch; 0.0 if it is not there."""
    for path in (lock_of(thing), thing):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0


def let_go(thing: Path, *, known_s: float) -> bool:
    """Removes it, unless it was used after known_s, or is being built. It goes by one rename: a
    kill leaves it whole, or already out of reach.
    """
    doomed = thing.with_name(f"{REMOVING}{thing.name}")
    with _lock_entry(lock_of(thing), fcntl.LOCK_EX) as held:
        if not held or last_used_s(thing) > known_s:
            return False
        remove_tree(str(doomed))  # of a removal that was killed in the midst
        if thing.exists():
            thing.rename(doomed)
    remove_tree(str(doomed))
    return not doomed.exists()


@contextmanager
def _lock_entry(path: Path, how: int) -> Iterator[bool]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)
