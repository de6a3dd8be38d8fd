"""Looks at what the living runs use: memory and processes over their whole trees.

Called by the supervisor once a second. rlimits bound each process at once; this bounds a run's sum.
"""

from __future__ import annotations

import os
from typing import Any, Iterable

from . import procs
from .sandbox import RunSandbox


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
            used = sum(map(procs.resident_bytes, pids))
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
            owner = marks.get(procs.mark_of(at), -1)
        for seen in [*path, at]:
            owners.setdefault(seen, owner)
        if owner >= 0:
            found[owner].append(pid)
    return [(sandbox, found[index]) for index, sandbox in enumerate(sandboxes)]
