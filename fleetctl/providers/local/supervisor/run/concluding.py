"""Writes the end record of a run: why it ended, its result, its last metrics, once its outputs are
kept.

Files that the task left in its work directory are read without ever following a link. The writer of
the journal and the judgement of results are those that the guests of other providers use.

A few small outputs are kept at once. More of them get a process of its own, so that the supervisor
does not wait; the run's end waits for that process.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fleetctl.guest.journal.ending import decide_outcome
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.journal.results import remove_result
from fleetctl.guest.outputs.keeping import (
    KEPT_ENDINGS,
    KeepLimits,
    OutputKeeper,
    TooMuchNow,
    count_left,
    judge_outputs,
)
from fleetctl.guest.outputs.pack import pack_name, read_index
from fleetctl.guest.outputs.selection import OutputPatterns

from .sandbox import RunSandbox, SupervisedRun

TEMPORARY = "tmp"  # in there
PRIVATE = ".fleetctl"  # in the work directory: parameters, result, metrics, temporary files


def start_of(config: dict[str, Any], work: str) -> str:
    """Returns where a run began, or its source where its `workdir` is outside of the work
    directory.
    """
    source = config["source"]
    workdir = config["workdir"] or ""
    start = os.path.join(work, source["name"]) if source else work
    if os.path.isabs(workdir):
        return start
    return os.path.join(start, workdir)


def left_at(config: dict[str, Any], work: str) -> str:
    """The same, below the directory of all work directories: there its files stay."""
    return os.path.relpath(start_of(config, work), os.path.dirname(work))


def conclude_run(
    sandbox: RunSandbox,
    run: SupervisedRun,
    limits: dict[str, Any],
) -> tuple[str, dict[str, Any]]:
    """Returns (the journal's line for the result or "", the fields of its last event). limits: its
    `timeout_s` and its `memory`, 0 = none.
    """
    limits = {**limits, "used": run.memory_used}
    ended = decide_outcome(
        run.ending,
        run.error,
        run.exit_code,
        sandbox.status,
        limits,
    )
    line = run.judge_result(ended)
    kept = run.outputs or {}
    before = ended["ok"]
    judge_outputs(kept, ended, run.say)
    if ended["ok"]:
        ended["message"] = run.join_remarks(kept.get("remarks", ()))
    elif before:
        line = ""
    line = run.conclude(line, ended)
    return line, {"at": time.time(), "started_at": run.started_at_s, **ended}


def write_lost(journal: Journal) -> None:
    """Writes that the run began before the machine was started the last time; its end is
    unknown.
    """
    journal.begin(time.time(), '"keeper":"lost/","note":""')
    journal.close()


def end_node(
    journal: Journal,
    result: str,
    ended: dict[str, Any],
) -> None:
    """Writes the end of one node of several, for the user. Only the journal of node 0 counts, so a
    failed write loses no data.
    """
    try:
        journal.end(result, ended, sandbox_open=False)
    except OSError:
        journal.close()


def forget_result(work: str) -> None:
    """So that the next task of a sandbox does not hand in the last one's."""
    remove_result(os.path.join(work, PRIVATE, "result.json"))


class LocalOutputs:
    """runs: the open directory of journals."""

    def __init__(self, config: dict[str, Any], runs: int) -> None:
        self._config = config
        self._runs = runs
        self._keeping: dict[int, tuple[RunSandbox, SupervisedRun]] = {}  # by pid of its keeper

    def knows(self, pid: int) -> bool:
        return pid in self._keeping

    def settle(self, sandbox: RunSandbox, run: SupervisedRun) -> bool:
        """Returns whether the outputs of an ended run are kept, or never will be. False: a process
        keeps them, and `ended` returns the sandbox when it is done.
        """
        if run.outputs is not None:
            return True
        if any(run is it for _, it in self._keeping.values()):
            return False
        if run.ending not in KEPT_ENDINGS or run.order.get("rank") or not run.began_ns:
            run.outputs = {}
        elif not run.order.get("outputs"):
            run.outputs = {"left": self._count_left(sandbox, run)}
        else:
            return self._keep(sandbox, run)
        return True

    def ended(self, pid: int) -> RunSandbox:
        """Takes the report of a keeper that has ended; returns the sandbox of its run."""
        sandbox, run = self._keeping.pop(pid)
        try:
            index = read_index(pack_name(run.name), dir_fd=self._runs)
            run.outputs = {**index, "count": len(index.pop("files"))}
        except (OSError, ValueError) as error:
            run.outputs = {"failure": f"the process that keeps them ended early ({error})"}
        return sandbox

    def _keep(self, sandbox: RunSandbox, run: SupervisedRun) -> bool:
        try:
            run.outputs = self._keeper(sandbox, run, quick=True).keep(
                self._runs, run.name, blobs=True
            )
        except TooMuchNow:
            return self._keep_beside(sandbox, run)
        except OSError as error:
            run.outputs = {"failure": str(error)}
        return True

    def _keep_beside(self, sandbox: RunSandbox, run: SupervisedRun) -> bool:
        try:
            pid = os.fork()
        except OSError as error:
            run.outputs = {"failure": str(error)}
            return True
        if pid == 0:
            code = 1
            try:
                keeper = self._keeper(sandbox, run, quick=False)
                keeper.keep(self._runs, run.name, blobs=True)
                code = 0
            finally:
                os._exit(code)
        self._keeping[pid] = (sandbox, run)
        return False

    def _keeper(
        self,
        sandbox: RunSandbox,
        run: SupervisedRun,
        *,
        quick: bool,
    ) -> OutputKeeper:
        order = run.order["outputs"]
        top = start_of(self._config, sandbox.work)
        patterns = OutputPatterns(order["patterns"])
        return OutputKeeper(
            KeepLimits(order),
            patterns,
            top,
            run.began_ns,
            quick=quick,
        )

    def _count_left(self, sandbox: RunSandbox, run: SupervisedRun) -> str:
        """Returns a sentence on what a run left in a directory that goes with it; or empty."""
        if run.order["reusable"]:
            return ""  # the next task finds the files
        if self._config["source"] is None and os.listdir(sandbox.work) == [PRIVATE]:
            return ""
        return count_left(start_of(self._config, sandbox.work), run.began_ns)
