"""Writes the end record of a run: why it ended, its result, its last metrics.

Called by supervise.py when all processes of the run are gone (or wait for the next task). Reads the
files that the task left in its work directory, never following a link.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fleetctl.guest.journal.digest import result_line
from fleetctl.guest.journal.ending import outcome
from fleetctl.guest.journal.results import (
    METRICS_READ_BYTES_MAX,
    RESULT_BYTES_MAX,
    RESULT_INVALID,
    judge,
    odd_result,
    parse_result,
)
from fleetctl.guest.outputs.keeping import judge_outputs

from ..sandbox import RunSandbox, SupervisedRun
from . import record


def files_left(work: str) -> list[str]:
    """Names of what a task left for us, so that what is not there need not be opened."""
    try:
        return os.listdir(f"{work}/{record.PRIVATE}")
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
    ended = outcome(
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
    text, problem, changed = judge(value)
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
    odd = odd_result(f"{sandbox.work}/{record.PRIVATE}/result.json")
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
    data = record.read_private(work, "metrics.jsonl", run.metrics.offset, METRICS_READ_BYTES_MAX)
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
        return record.read_private(work, "result.json", 0, RESULT_BYTES_MAX)
    finally:
        os.close(work)


def _open_work(sandbox: RunSandbox) -> Any:
    try:
        return os.open(sandbox.work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
