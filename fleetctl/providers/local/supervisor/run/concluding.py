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
from typing import Any, Optional

from fleetctl.guest.journal.digest import result_line
from fleetctl.guest.journal.ending import decide_outcome
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.journal.results import (
    METRICS_READ_BYTES_MAX,
    RESULT_BYTES_MAX,
    RESULT_INVALID,
    explain_odd_file,
    judge_result,
    parse_result,
    read_below,
    remove_result,
)
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


def files_left(work: str) -> list[str]:
    """Names of what a task left for us, so that what is not there need not be opened."""
    try:
        return os.listdir(f"{work}/{PRIVATE}")
    except OSError:
        return []


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
    left: list[str],
    limits: dict[str, Any],
) -> tuple[str, dict[str, Any]]:
    """Returns (the journal's line for the result or "", the fields of its last event).

    left: what `files_left` found; limits: its `timeout_s` and its `memory`, 0 = none.
    """
    limits = {**limits, "used": run.memory_used}
    ended = decide_outcome(
        run.ending,
        run.error,
        run.exit_code,
        sandbox.status,
        limits,
    )
    line = ""
    if ended["ok"] and (run.has_result or "result.json" in left):
        line, problem = _result_line(sandbox, run)
        if problem:
            ended.update(
                ok=False,
                reason=RESULT_INVALID,
                message=problem,
            )
    elif ended["reason"] == RESULT_INVALID and run.has_result:
        line, _ = _result_line(sandbox, run)  # the fields that could be kept
    kept = run.outputs or {}
    judge_outputs(kept, ended, run.say)
    if ended["ok"]:
        remarks = [*run.remarks, *kept.get("remarks", ()), run.metrics.remark]
        ended["message"] = "; ".join(filter(None, remarks))
    elif ended["reason"] != RESULT_INVALID:
        line = ""
    for follower in run.followers:
        line = follower.conclude(line, ended, run.journal)
    return line, {"at": time.time(), "started_at": run.started_at_s, **ended}


def _result_line(sandbox: RunSandbox, run: SupervisedRun) -> tuple[str, str]:
    """Returns (line of the journal, "") or ("", the fault); both empty without a result."""
    value = run.result
    if not run.has_result:
        data = _result_file(sandbox)
        if data is None:
            return "", ""
        value, problem = parse_result(data)
        if problem:
            return "", problem
    text, problem, changed = judge_result(value)
    run.remarks += [changed] if changed else []
    return (result_line(text) if text else ""), problem


def note_odd_result(
    sandbox: RunSandbox,
    run: SupervisedRun,
    left: list[str],
) -> None:
    """Logs a result file that is not a valid result; to be called while the log is still open."""
    if "result.json" not in left or run.has_result:
        return
    odd = explain_odd_file(f"{sandbox.work}/{PRIVATE}/result.json")
    if odd:
        run.say(odd)
        run.remarks.append(odd)


def read_metrics(
    sandbox: RunSandbox,
    run: SupervisedRun,
    *,
    whole: bool = False,
) -> bool:
    """Takes in the lines that a command appended to $FLEETCTL_METRICS since the last look, or all
    that is left; returns whether there was any.
    """
    work = _open_work(sandbox)
    if work is None:
        return False
    news = last = False
    try:
        while True:
            before = run.metrics.offset
            news = _take_metrics(work, run, last=last) or news
            if last or not whole:
                break
            last = run.metrics.offset == before
    finally:
        os.close(work)
    return news


def _take_metrics(
    work: int,
    run: SupervisedRun,
    *,
    last: bool,
) -> bool:
    """Returns whether there was anything to record in one piece of the file, or in its unfinished
    end.
    """
    data = read_private(work, "metrics.jsonl", run.metrics.offset, METRICS_READ_BYTES_MAX)
    if not data:
        return False
    found, wrong = run.metrics.take(data, last=last)
    for problem in wrong:
        run.say(problem)
    return sum(run.journal.metric(step, values, None) for step, values in found) > 0


def _result_file(sandbox: RunSandbox) -> Any:
    work = _open_work(sandbox)
    if work is None:
        return None
    try:
        return read_private(work, "result.json", 0, RESULT_BYTES_MAX)
    finally:
        os.close(work)


def _open_work(sandbox: RunSandbox) -> Any:
    try:
        return os.open(sandbox.work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


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


def read_private(
    work: int,
    name: str,
    offset: int,
    limit: int,
) -> Optional[bytes]:
    """Reads as `read_below` does, a file of the task whose work directory is open as `work`."""
    return read_below(
        PRIVATE,
        name,
        offset,
        limit,
        dir_fd=work,
    )


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
