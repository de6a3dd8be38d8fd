"""Records the call of each run on this machine's disk, one file a resource, and follows the nodes
beside the first of a run with several.

A call has no name of ours, so its id is written down as soon as it is known. Losing a record costs
a second call, which begins no work.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from fleetctl.guest.nodes.gang import node_name
from fleetctl.providers.paths import checked_name, jobs_dir, make_private

FILE = "calls"
RESOURCES_MAX = 1000  # whose files are kept in memory

NODES = b'{"e":"nodes"'
ALL_OVER_S = 60.0  # for the last output of all nodes to arrive, before the run's end is reported


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


class _CallGang:
    def __init__(self) -> None:
        # the run is over; output that a node has not sent by now never comes
        self.over = asyncio.Event()
        self.left: dict[str, asyncio.Event] = {}  # of its nodes, when each is settled


class CallNodes:
    """The nodes beside the first that are followed, each as if it were a run of its own, and
    whether their runs are over. follow: begins to look after a node; may be asked again.
    """

    def __init__(self, follow: Callable[[CallHandle], Awaitable[None]]) -> None:
        self._follow = follow
        self._gangs: dict[str, _CallGang] = {}

    async def follow_nodes(self, call: CallHandle, frames: bytes) -> None:
        """Follows the nodes that a run's frames report."""
        if call.run in self._gangs:
            return
        count = _count_nodes(frames)
        if count < 2:
            return
        gang = self._gangs[call.run] = _CallGang()
        for rank in range(1, count):
            node = CallHandle(
                "node",
                str(rank),
                call.fleet,
                call.uid,
                call.run,
            )
            gang.left[node.files] = asyncio.Event()
        for rank in range(1, count):
            await self._follow(
                CallHandle(
                    "node",
                    str(rank),
                    call.fleet,
                    call.uid,
                    call.run,
                )
            )

    async def is_over(self, run: str, wait_s: float) -> bool:
        """Returns whether the run of a node has ended, at the latest after wait_s."""
        gang = self._gangs.get(run)
        if gang is None:
            return True
        try:
            await asyncio.wait_for(gang.over.wait(), wait_s)
        except TimeoutError:
            return False
        return True

    def ended(self, node: CallHandle) -> None:
        """Returns whether all output of a node is here."""
        gang = self._gangs.get(node.run)
        if gang is not None:
            gang.left[node.files].set()

    async def all_over(self, run: str) -> None:
        """Notes that the run has ended; returns once the last output of its nodes is here, too."""
        gang = self._gangs.get(run)
        if gang is None:
            return
        gang.over.set()
        waits = [asyncio.ensure_future(one.wait()) for one in gang.left.values()]
        await asyncio.wait(waits, timeout=ALL_OVER_S)
        for wait in waits:
            wait.cancel()
        self._gangs.pop(run, None)


def _count_nodes(frames: bytes) -> int:
    """Returns how many nodes the frames report; 1 without a report."""
    for line in frames.splitlines():
        if line.startswith(NODES):
            return len(json.loads(line)["nodes"])
    return 1
