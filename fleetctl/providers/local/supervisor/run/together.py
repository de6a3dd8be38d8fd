"""Begins and ends the nodes of an attempt that has several. Called by supervise.py, whose own ways
of making, beginning and ending one sandbox it uses for each of them.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from fleetctl.guest.journal.record import Journal

from ..gang.gang import CONSEQUENCE, READY_S, Gang
from ..io.timers import Timers
from .reports import record
from .reports.hearing import Hearing
from .sandbox import Sandbox

RETRY_S = 1.0  # until the disk is asked again to take an end record
OK: dict[str, Any] = {"ok": True}


class Together:
    """runs: the open directory of journals. end: (sandbox, why, grace in seconds)."""

    def __init__(
        self,
        runs: int,
        *,
        hearing: Hearing,
        timers: Timers,
        make: Callable[[dict[str, Any]], Sandbox],
        begin: Callable[[Sandbox, dict[str, Any], Journal], None],
        end: Callable[[Sandbox, str, float], None],
        remove: Callable[[Sandbox], None],
        changed: Callable[[str], None],
    ) -> None:
        self._runs = runs
        self._hearing, self._timers = hearing, timers
        self._make, self._begin, self._end, self._remove = make, begin, end, remove
        self._changed = changed

    def begin(self, gang: Gang[Sandbox], journal: Journal) -> dict[str, Any]:
        """Fork every node, or none; the reply to who ordered it. journal: of the attempt, which is
        that of node 0.
        """
        made = 0
        try:
            for rank in range(gang.count):
                order = gang.order_of(rank)
                own = journal if rank == 0 else Journal(self._runs, order["run"])
                member = self._make(order)
                member.gang, member.rank = gang, rank
                gang.members.append(member)
                self._begin(member, order, own)
                made += 1
        except OSError as error:
            self._let_go(gang, journal)
            message = f"{made} of {gang.count} nodes: a run cannot begin now: {error}"
            return {"reason": "NoCapacity", "message": message}
        journal.nodes(gang.table())
        self._changed(gang.order["run"])
        self._timers.after(READY_S, lambda: self._hurry(gang))
        return OK

    def over(
        self, gang: Gang[Sandbox], sandbox: Sandbox, result: str, ended: dict[str, Any]
    ) -> None:
        """A node is over, with the fields of its end; the last one ends the attempt."""
        why = sandbox.run.ending if sandbox.run is not None else ""
        ended["at"] = sandbox.ended_at_s or ended["at"]
        gang.ended(sandbox, why, result, ended)
        first = gang.members[0].run
        if sandbox.rank and sandbox.run is not None:
            record.end_node(sandbox.run.journal, result, ended)
            sandbox.run = None
            self._remove(sandbox)
        self._end_the_rest(gang, sandbox)
        if first is not None:
            first.journal.nodes(gang.table())
            self._changed(first.name)
        if not gang.living:
            self._all_over(gang)

    def _end_the_rest(self, gang: Gang[Sandbox], sandbox: Sandbox) -> None:
        """Where one has failed, now; where node 0 is done, once the others had time to leave."""
        grace_s: float = gang.order["grace_s"]
        if sandbox.rank == 0 and gang.order.get("ray"):
            self._end_all(gang, 0.0)  # a Ray node has nothing of its own to finish
        elif gang.decides(sandbox):
            self._end_all(gang, grace_s)
        elif sandbox.rank == 0:
            self._timers.after(grace_s, lambda: self._end_all(gang, 0.0))

    def _end_all(self, gang: Gang[Sandbox], grace_s: float) -> None:
        for member in gang.living:
            self._end(member, CONSEQUENCE, grace_s)

    def _all_over(self, gang: Gang[Sandbox]) -> None:
        sandbox = gang.members[0]
        run, (result, ended) = sandbox.run, gang.end()
        if run is None:
            return
        try:
            run.journal.end(result, ended, sandbox_open=False)
        except OSError:  # a full disk: the end of a run waits until it can be told
            self._timers.after(RETRY_S, lambda: self._all_over(gang))
            return
        gang.close()
        sandbox.run = None
        self._remove(sandbox)
        self._changed(run.name)

    def _let_go(self, gang: Gang[Sandbox], journal: Journal) -> None:
        """Nothing of it has begun: those that were forked wait, and go when nobody tells them. The
        next try finds no trace of this one.
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
            member.gang, member.run = None, None
            self._end(member, "NoCapacity", 0.0)
        journal.close()
        os.unlink(f"{gang.order['run']}.jsonl", dir_fd=self._runs)

    def _hurry(self, gang: Gang[Sandbox]) -> None:
        if gang.begun:
            return
        for member in gang.living:
            self._end(member, "NodesNotReady", 0.0)
