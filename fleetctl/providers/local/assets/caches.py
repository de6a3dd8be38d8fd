"""What provider `local` keeps for the next use, environments and checkouts, and the directories of
its supervisors. Named by its plugin row; see providers/contract/caches.py.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from fleetctl.providers.contract.caches import YOUNG_S, Cached
from fleetctl.providers.local import locks
from fleetctl.providers.local.assets import shelf
from fleetctl.providers.local.paths import Layout, uid_of
from fleetctl.providers.rundir.builds import LINKS
from fleetctl.providers.rundir.sizes import room_of

ENVIRONMENTS, REPOSITORIES, WORK = "environments", "repositories", "workDirectories"
PLAIN = "plain-"  # those that hold nothing: a few files
IN_USE, YOUNG = "in use", "used within the last hour"


class LocalCaches:
    def __init__(self, home: Path) -> None:
        self._layout = Layout(home)

    def listed(self, over: Collection[str], now_s: float) -> Iterator[Cached]:
        used, since_s = self._environments_in_use(over), self._oldest_session_s()
        for path in _directories(self._layout.environments):
            if path.name.startswith(PLAIN):
                continue
            used_s = shelf.used_s(path)
            recent = since_s is not None and used_s >= since_s - YOUNG_S
            held = IN_USE if path.name in used or recent else ""
            yield _cached(ENVIRONMENTS, path, used_s, held, now_s)
        for path in _directories(self._layout.repositories):
            yield _cached(REPOSITORIES, path, shelf.used_s(path), "", now_s)
        for path in _directories(self._layout.supervisors):
            uid = uid_of(path.name)
            held = "" if uid in over else IN_USE
            yield Cached(WORK, uid, uid, room_of(path), 0.0, held)

    def let_go(self, one: Cached) -> bool:
        top = {
            ENVIRONMENTS: self._layout.environments,
            REPOSITORIES: self._layout.repositories,
        }[one.sort]
        thing = top / one.key
        if not shelf.let_go(thing, known_s=one.used_s):
            return False
        thing.with_suffix(".log").unlink(missing_ok=True)
        return True

    def _environments_in_use(self, over: Collection[str]) -> set[str]:
        """Of objects that are not over: each has a link to the log of every image that it uses."""
        found: set[str] = set()
        for job in _directories(self._layout.jobs):
            links = job / LINKS
            if job.name not in over and links.is_dir():
                found |= {Path(name).stem for name in os.listdir(links)}
        return found

    def _oldest_session_s(self) -> float | None:
        """When the oldest session began that an interpreter holds; None where none does."""
        rooms = _directories(self._layout.root / "sessions")
        return min((it.stat().st_ctime for it in rooms if not locks.lock_is_free(it)), default=None)


def _cached(sort: str, path: Path, used_s: float, held: str, now_s: float) -> Cached:
    held = held or (YOUNG if used_s > now_s - YOUNG_S else "")
    return Cached(sort, path.name, path.name, room_of(path), used_s, held)


def _directories(top: Path) -> list[Path]:
    if not top.is_dir():
        return []
    return sorted(it for it in top.iterdir() if it.is_dir() and not it.is_symlink())
