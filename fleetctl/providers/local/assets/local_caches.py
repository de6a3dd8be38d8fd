"""The caches of provider `local`, environments and checkouts, and the directories of its
supervisors. Named by its plugin row; see providers/contract/caches.py.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from fleetctl.providers.contract.caches import YOUNG_S, CachedEntry
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.assets import cache_dir
from fleetctl.providers.local.local_layout import LocalLayout, uid_of
from fleetctl.providers.rundir.build_logs import LINKS
from fleetctl.providers.rundir.rundir_sizes import disk_usage

ENVIRONMENTS = "environments"
REPOSITORIES = "repositories"
WORK = "workDirectories"
PLAIN = "plain-"  # environments without packages: a few files
IN_USE = "in use"
YOUNG = "used within the last hour"


class LocalCaches:
    def __init__(self, home: Path) -> None:
        self._layout = LocalLayout(home)

    def listed(self, over: Collection[str], now_s: float) -> Iterator[CachedEntry]:
        used = self._environments_in_use(over)
        since_s = self._oldest_session_s()
        for path in _list_directories(self._layout.environments):
            if path.name.startswith(PLAIN):
                continue
            used_s = cache_dir.used_s(path)
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
                cache_dir.used_s(path),
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
        if not cache_dir.let_go(thing, known_s=one.used_s):
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
