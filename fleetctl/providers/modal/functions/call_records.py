"""Records the call of each run on this machine's disk: one file a resource, which only grows.

A call has no name of ours, so its id is written down as soon as it is known. Losing a record costs
a second call, which begins no work.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fleetctl.guest.nodes.names import node_name
from fleetctl.providers.paths import checked_name, jobs_dir, make_private

FILE = "calls"
RESOURCES_MAX = 1000  # whose files are kept in memory


@dataclass(frozen=True, slots=True)
class CallHandle:
    """The store's handle of a run in a function.

    sort: `fn` before its call was made, when id is the name of the function's app; `fc` after, when
        id is the call's; `node` for a node beside the first of several, which only this process
        knows, with its rank as the id. fleet: the store that owns it.
    """

    sort: str
    id: str
    fleet: str
    uid: str
    run: str

    def __str__(self) -> str:
        return f"{self.sort}:{self.id}:{self.fleet}:{self.uid}:{self.run}"

    @property
    def files(self) -> str:
        """The name of its journal and its log."""
        if self.sort == "node":
            return node_name(self.run, int(self.id))
        return self.run

    @property
    def called(self) -> bool:
        return self.sort == "fc"


def parse_handle(text: str) -> CallHandle | None:
    """Returns the handle of a call in its parts; None for the handle of a sandbox."""
    sort, _, rest = text.partition(":")
    if sort not in ("fn", "fc", "node") or rest.count(":") != 3:
        return None
    return CallHandle(sort, *rest.split(":"))


class CallRecords:
    def __init__(self, home: Path, provider: str) -> None:
        self._jobs = jobs_dir(home, provider)
        self._known: dict[str, dict[str, str]] = {}

    def call(self, uid: str, run: str) -> str:
        """Returns the id of a run's call; "" while it is unknown."""
        if uid:
            return self._of(uid).get(run, "")
        return ""

    def runs(self, uid: str) -> bool:
        """Returns whether the resource ever called a function."""
        if uid:
            return bool(self._of(uid))
        return False

    def write(
        self,
        uid: str,
        run: str,
        call: str,
    ) -> None:
        self._of(uid)[run] = call
        path = make_private(self._jobs / checked_name(uid)) / FILE
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        try:
            os.write(handle, f"{run} {call}\n".encode())
        finally:
            os.close(handle)

    def forget(self, uid: str) -> None:
        """Forgets a resource: its files are about to go."""
        self._known.pop(uid, None)

    def _of(self, uid: str) -> dict[str, str]:
        known = self._known.get(uid)
        if known is None:
            while len(self._known) >= RESOURCES_MAX:
                self._known.pop(next(iter(self._known)))
            known = self._known[uid] = _read_records(self._jobs / checked_name(uid) / FILE)
        return known


def _read_records(path: Path) -> dict[str, str]:
    """The first call of each run: of two that raced, both are followed to the same end."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines(keepends=True):
        run, _, call = line.strip().partition(" ")
        if line.endswith("\n") and call:
            found.setdefault(run, call)
    return found
