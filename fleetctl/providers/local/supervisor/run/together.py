"""Begins and ends the nodes of an attempt that has several. Called by supervise.py, whose own ways
of making, beginning and ending one sandbox it uses for each node.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from fleetctl.guest.journal.record import Journal

from ..clients import Timers
from . import concluding
from .gang import CONSEQUENCE, READY_S, LocalGang
from .hearing import WorkerEvents
from .sandbox import RunSandbox

RETRY_S = 1.0  # until the disk is asked again to take an end record
OK: dict[str, Any] = {"ok": True}


class GangRunner:
    """runs: the open directory of journals. end: (sandbox, why, grace in seconds)."""

    def __init__(
        self,
        runs: int,
        *,
        hearing: WorkerEvents,
        timers: Timers,
        make: Callable[[dict[str, Any]], RunSandbox],
        begin: Callable[[RunSandbox, dict[str, Any], Journal], None],
        end: Callable[[RunSandbox, str, float], None],
        remove: Callable[[RunSandbox], None],
        changed: Callable[[str], None],
    ) -> None:
        self._runs = runs
        self._hearing = hearing
        self._timers = timers
        self._make = make
        self._begin = begin
        self._end = end
        self._remove = remove
        self._changed = changed

    def begin(self, gang: LocalGang[RunSandbox], journal: Journal) -> dict[str, Any]:
        """Forks every node, or none; returns the reply to the order's sender. journal: of the
        attempt, which is that of node 0.
        """
        made = 0
        try:
            for rank in range(gang.count):
                order = gang.order_of(rank)
                own = journal if rank == 0 else Journal(self._runs, order["run"], journal.masking)
                member = self._make(order)
                member.gang = gang
                member.rank = rank
                gang.members.append(member)
                self._begin(member, order, own)
                made += 1
        except OSError as error:
            self._let_go(gang, journal)
            message = f"{made} of {gang.count} nodes: a run cannot begin now: {error}"
            return {"reason": "NoCapacity", "message": message}
        journal.nodes(gang.table())
        self._changed(gang.order["run"])
        self._timers.after(READY_S, lambda: self._hurry_nodes(gang))
        return OK

    def over(
        self,
        gang: LocalGang[RunSandbox],
        sandbox: RunSandbox,
        result: str,
        ended: dict[str, Any],
    ) -> None:
        """Notes the end of a node, with its fields; the last one ends the attempt."""
        why = sandbox.run.ending if sandbox.run is not None else ""
        ended["at"] = sandbox.ended_at_s or ended["at"]
        gang.ended(sandbox, why, result, ended)
        first = gang.members[0].run
        if sandbox.rank and sandbox.run is not None:
            concluding.end_node(sandbox.run.journal, result, ended)
            sandbox.run = None
            self._remove(sandbox)
        self._end_the_rest(gang, sandbox)
        if first is not None:
            first.journal.nodes(gang.table())
            self._changed(first.name)
        if not gang.living:
            self._all_over(gang)

    def _end_the_rest(self, gang: LocalGang[RunSandbox], sandbox: RunSandbox) -> None:
        """Ends the others: at once where a node has failed; where node 0 is done, once they had
        time to leave.
        """
        grace_s: float = gang.order["grace_s"]
        if sandbox.rank == 0 and gang.order.get("ray"):
            self._end_all(gang, 0.0)  # a Ray node has no work of its own to finish
        elif gang.decides(sandbox):
            self._end_all(gang, grace_s)
        elif sandbox.rank == 0:
            self._timers.after(grace_s, lambda: self._end_all(gang, 0.0))

    def _end_all(self, gang: LocalGang[RunSandbox], grace_s: float) -> None:
        for member in gang.living:
            self._end(member, CONSEQUENCE, grace_s)

    def _all_over(self, gang: LocalGang[RunSandbox]) -> None:
        sandbox = gang.members[0]
        run, (result, ended) = sandbox.run, gang.end()
        if run is None:
            return
        try:
            run.journal.end(result, ended, sandbox_open=False)
        except OSError:  # a full disk: the end of a run waits until it can be written
            self._timers.after(RETRY_S, lambda: self._all_over(gang))
            return
        gang.close()
        sandbox.run = None
        self._remove(sandbox)
        self._changed(run.name)

    def _let_go(self, gang: LocalGang[RunSandbox], journal: Journal) -> None:
        """Gives up an attempt that has not begun: forked nodes wait, and go without a word from us.
        The next try finds no trace of this one.
        """
        gang.close()
        for member in gang.members:
            run = member.run
            if run is not None:
                self._hearing.finish(member, run)
                run.close_logs()
            if run is not None and member.rank:
                os.unlink(f"{run.name}.jsonl", dir_fd=self._runs)
                run.journal.close()
            self._hearing.hang_up(member)
            member.gang = None
            member.run = None
            self._end(member, "NoCapacity", 0.0)
        journal.close()
        os.unlink(f"{gang.order['run']}.jsonl", dir_fd=self._runs)

    def _hurry_nodes(self, gang: LocalGang[RunSandbox]) -> None:
        if gang.begun:
            return
        for member in gang.living:
            self._end(member, "NodesNotReady", 0.0)
