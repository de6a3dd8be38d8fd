"""Looks once a second at living runs: their reports in files, whether they still progress, and what
they use over their whole trees.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterable, Mapping

from fleetctl.guest.supervision.pace import STALLED
from fleetctl.guest.supervision.processes import mark_of, resident_bytes

from ..clients import Timers
from . import procs
from .sandbox import RunSandbox, SupervisedRun

TICK_S = 1.0  # between two looks at memory, processes and metrics files


class RunMonitor:
    def __init__(
        self,
        config: dict[str, Any],
        sandboxes: Mapping[str, RunSandbox],
        timers: Timers,
        *,
        changed: Callable[[str], None],
        end: Callable[[RunSandbox, str, float], None],
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
        """Looks once a second: limits on sums, and metrics files of commands."""
        self._timers.after(TICK_S, self._look)
        live = [it for it in self._sandboxes.values() if it.run is not None and not _is_over(it)]
        for sandbox in live:
            if sandbox.run is not None and sandbox.run.read():
                self._changed(sandbox.run.name)
            if sandbox.run is not None:
                self._look_for_a_stall(sandbox, sandbox.run)
                self._look_for_stragglers(sandbox, sandbox.run)
        self._sample_load(live)
        # Without a namespace of our own the whole machine would be looked through.
        if live and (self._config["namespaces"] or self._config["limits"]["memory"]):
            for sandbox, why in find_overuse(live, self._config["limits"]):
                self._end(sandbox, why, 0.0)

    def _sample_load(self, live: list[RunSandbox]) -> None:
        """Samples the processes of runs. One look through the machine is for all that are due."""
        due = [it for it in live if it.run is not None and it.run.load_due]
        for sandbox, pids in _process_trees(due) if due else ():
            if sandbox.run is not None and sandbox.run.note_load(pids):
                self._changed(sandbox.run.name)

    def _look_for_a_stall(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        """Looks for a stall: a hanging run prints its stacks, then is asked to end."""
        if run.ending:
            return
        wait_s = run.ends_in_s(lambda: _watched_pids(sandbox))
        if wait_s is not None:
            self._timers.after(wait_s, lambda: self._end_stalled(sandbox, run))

    def _look_for_stragglers(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        """Writes stragglers into node 0's journal, for all nodes; while all live, since an ended
        node steps no more.
        """
        gang = sandbox.gang
        if gang is None or sandbox.rank or len(gang.living) < gang.count:
            return
        runs = [member.run for member in gang.members if member.run is not None]
        text = gang.stragglers.find_new([one.journal.stepped for one in runs], time.time())
        if text is not None:
            run.say(f"Straggler {text}")
            run.journal.note("straggler", {"message": text})
            self._changed(run.name)

    def _end_stalled(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        if sandbox.run is run and sandbox.status is None:
            self._end(sandbox, STALLED, run.order["grace_s"])


def _watched_pids(sandbox: RunSandbox) -> list[int]:
    """Returns the process of the run, or of all nodes: node 0 shows that it hangs; their stacks
    show which one it awaits.
    """
    nodes = sandbox.gang.living if sandbox.gang is not None else [sandbox]
    return [pid for it in nodes for pid in procs.find_marked(it.mark, it.mark + 1)]


def _is_over(sandbox: RunSandbox) -> bool:
    """A node that waits for the end of the others."""
    return sandbox.gang is not None and sandbox.gang.ends[sandbox.rank] is not None


def find_overuse(
    sandboxes: Iterable[RunSandbox], limits: dict[str, Any]
) -> list[tuple[RunSandbox, str]]:
    """The sandboxes that are above a limit, with the reason that their run gets."""
    trees = _process_trees(list(sandboxes))
    found = []
    for sandbox, pids in trees:
        if len(pids) > limits["processes"]:
            found.append((sandbox, "TooManyProcesses"))
        elif limits["memory"]:
            used = sum(map(resident_bytes, pids))
            if used > limits["memory"] and sandbox.run is not None:
                sandbox.run.memory_used = sandbox.run.memory_used or used
                found.append((sandbox, "OOMKilled"))
    return found


def _process_trees(sandboxes: list[RunSandbox]) -> list[tuple[RunSandbox, list[int]]]:
    """Each sandbox with its processes: descendants of its leader, and orphans that carry its
    mark.
    """
    parents = procs.map_parents()
    roots = {
        sandbox.pid: index for index, sandbox in enumerate(sandboxes) if sandbox.pid is not None
    }
    marks = {sandbox.mark: index for index, sandbox in enumerate(sandboxes)}
    owners: dict[int, int] = dict(roots)
    me = os.getpid()
    found: list[list[int]] = [[] for _ in sandboxes]
    for pid in parents:
        path = []
        at = pid
        while at not in owners and at in parents and parents[at] != me:
            path.append(at)
            at = parents[at]
        owner = owners.get(at, -1)
        if owner == -1 and parents.get(at) == me:
            owner = marks.get(mark_of(at), -1)
        for seen in [*path, at]:
            owners.setdefault(seen, owner)
        if owner >= 0:
            found[owner].append(pid)
    return [(sandbox, found[index]) for index, sandbox in enumerate(sandboxes)]
