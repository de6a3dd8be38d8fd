"""Looks once a second at what lives: what it told through files, whether it still gets on, and
whether it is within its limits. Made by supervise.py; ends nothing itself.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

from fleetctl.guest.supervision.pace import STALLED, ends_in_s

from ..io.timers import Timers
from . import procs, usage
from .reports.concluding import read_metrics
from .sandbox import Run, Sandbox

TICK_S = 1.0  # between two looks at memory, processes and metrics files


class Looking:
    def __init__(
        self,
        config: dict[str, Any],
        sandboxes: Mapping[str, Sandbox],
        timers: Timers,
        *,
        changed: Callable[[str], None],
        end: Callable[[Sandbox, str, float], None],
    ) -> None:
        """sandboxes: those that exist, as the supervisor goes on to keep them. changed: a run
        reported something; end: a sandbox is to end for this reason, within seconds of grace.
        """
        self._config = config
        self._sandboxes = sandboxes
        self._timers = timers
        self._changed = changed
        self._end = end
        timers.after(TICK_S, self._look)

    def _look(self) -> None:
        """Once a second: limits on sums, and metrics files of commands."""
        self._timers.after(TICK_S, self._look)
        live = [it for it in self._sandboxes.values() if it.run is not None and not _is_over(it)]
        for sandbox in live:
            if sandbox.run is not None and _reported(sandbox, sandbox.run):
                self._changed(sandbox.run.name)
            if sandbox.run is not None:
                self._look_for_a_stall(sandbox, sandbox.run)
                self._look_for_stragglers(sandbox, sandbox.run)
        # Without a namespace of our own the whole machine would be looked through.
        if live and (self._config["namespaces"] or self._config["limits"]["memory"]):
            for sandbox, why in usage.overuse(live, self._config["limits"]):
                self._end(sandbox, why, 0.0)

    def _look_for_a_stall(self, sandbox: Sandbox, run: Run) -> None:
        """What hangs says where, then is told to end."""
        if run.pace is None or run.ending:
            return
        count = run.checkpoints.count if run.checkpoints is not None else 0
        wait_s = ends_in_s(
            run.pace,
            (run.journal.step, count, run.heard),
            say=run.say,
            pids=lambda: _pids(sandbox),
        )
        if wait_s is not None:
            run.pace = None
            self._timers.after(wait_s, lambda: self._end_stalled(sandbox, run))

    def _look_for_stragglers(self, sandbox: Sandbox, run: Run) -> None:
        """Node 0's journal tells of all; while all live, since one that has ended steps no more."""
        gang = sandbox.gang
        if gang is None or sandbox.rank or len(gang.living) < gang.count:
            return
        runs = [member.run for member in gang.members if member.run is not None]
        text = gang.stragglers.news([one.journal.stepped for one in runs], time.time())
        if text is not None:
            run.say(f"Straggler {text}")
            run.journal.note("straggler", {"message": text})
            self._changed(run.name)

    def _end_stalled(self, sandbox: Sandbox, run: Run) -> None:
        if sandbox.run is run and sandbox.status is None:
            self._end(sandbox, STALLED, run.order["grace_s"])


def _pids(sandbox: Sandbox) -> list[int]:
    """Of it, or of all nodes: node 0 shows that it hangs; their stacks show which one it awaits."""
    nodes = sandbox.gang.living if sandbox.gang is not None else [sandbox]
    return [pid for it in nodes for pid in procs.marked(it.mark, it.mark + 1)]


def _is_over(sandbox: Sandbox) -> bool:
    """A node that waits for the end of the others."""
    return sandbox.gang is not None and sandbox.gang.ends[sandbox.rank] is not None


def _reported(sandbox: Sandbox, run: Run) -> bool:
    """Take in what the run has told through files; whether there was anything."""
    news = [read_metrics(sandbox, run), *(one.take(run.journal) for one in run.followers)]
    return any(news)
