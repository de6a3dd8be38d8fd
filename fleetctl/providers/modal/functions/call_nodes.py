"""Follows the nodes beside the first of runs with several nodes: each node's output is followed as
if it were a run of its own, so that its log and its journal come here as those of any run do.

Made by function_runs.py; fed by function_calls.py. It knows which nodes are followed, and when
their runs are over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from fleetctl.providers.modal.functions.call_records import CallHandle

NODES = b'{"e":"nodes"'
ALL_OVER_S = 60.0  # for the last output of all nodes to arrive, before the run's end is reported


class _CallGang:
    def __init__(self) -> None:
        # the run is over; output that a node has not sent by now never comes
        self.over = asyncio.Event()
        self.left: dict[str, asyncio.Event] = {}  # of its nodes, when each is settled


class CallNodes:
    """follow: begins to look after a node; may be asked again."""

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
        """Returns whether the run of a node is over, at the latest after wait_s."""
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


def _count_nodes(frames: bytes) -> int:
    """Returns how many nodes the frames report; 1 without a report."""
    for line in frames.splitlines():
        if line.startswith(NODES):
            return len(json.loads(line)["nodes"])
    return 1
