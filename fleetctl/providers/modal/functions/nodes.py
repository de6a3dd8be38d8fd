"""The nodes beside the first of runs that have several: what each says is followed as if it were a
run of its own, so that its log and its journal come here as those of any run do.

Made by runs.py; told by calls.py. It knows which are followed, and when their runs are over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from fleetctl.providers.modal.functions.call_records import Handle

NODES = b'{"e":"nodes"'
ALL_OVER_S = 60.0  # for the last words of all nodes to be here, before the run's end is told


class _Gang:
    def __init__(self) -> None:
        self.over = asyncio.Event()  # the run is; what a node has not said by now it never will
        self.left: dict[str, asyncio.Event] = {}  # of its nodes, when each is settled


class Nodes:
    """follow: begins to look after a node; may be asked again."""

    def __init__(self, follow: Callable[[Handle], Awaitable[None]]) -> None:
        self._follow = follow
        self._gangs: dict[str, _Gang] = {}

    async def heard(self, call: Handle, frames: bytes) -> None:
        """Follow the nodes that frames of a run tell of."""
        if call.run in self._gangs:
            return
        count = _count(frames)
        if count < 2:
            return
        gang = self._gangs[call.run] = _Gang()
        for rank in range(1, count):
            node = Handle("node", str(rank), call.fleet, call.uid, call.run)
            gang.left[node.files] = asyncio.Event()
        for rank in range(1, count):
            await self._follow(Handle("node", str(rank), call.fleet, call.uid, call.run))

    async def is_over(self, run: str, wait_s: float) -> bool:
        """Whether the run of a node is, at the latest after wait_s."""
        gang = self._gangs.get(run)
        if gang is None:
            return True
        try:
            await asyncio.wait_for(gang.over.wait(), wait_s)
        except TimeoutError:
            return False
        return True

    def ended(self, node: Handle) -> None:
        """Whether all that a node said is here."""
        gang = self._gangs.get(node.run)
        if gang is not None:
            gang.left[node.files].set()

    async def all_over(self, run: str) -> None:
        """The run is over: returns once the last words of its nodes are here, too."""
        gang = self._gangs.get(run)
        if gang is None:
            return
        gang.over.set()
        waits = [asyncio.ensure_future(one.wait()) for one in gang.left.values()]
        await asyncio.wait(waits, timeout=ALL_OVER_S)
        for wait in waits:
            wait.cancel()
        self._gangs.pop(run, None)


def _count(frames: bytes) -> int:
    """How many nodes they tell of; 1 when nothing is told."""
    for line in frames.splitlines():
        if line.startswith(NODES):
            return len(json.loads(line)["nodes"])
    return 1
