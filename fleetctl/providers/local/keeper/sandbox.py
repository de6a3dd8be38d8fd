"""The records of one keeper: a run, and the sandbox in which runs execute one after another.

A sandbox is a work directory and at most one process that leads it. Filled by supervise.py; decides
nothing but how an ended run is called.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Optional

from .logfile import LogFile
from .record import Journal

CHANNEL_LINE_BYTES_MAX = 1024 * 1024  # a result of the largest size, escaped, with room to spare


class Run:
    """One attempt that has begun and not ended."""

    def __init__(self, order: dict[str, Any], journal: Journal, log: LogFile) -> None:
        self.order = order
        self.name: str = order["run"]
        self.journal = journal
        self.log = log
        self.output: Optional[int] = None  # where its stdout and stderr arrive
        self.started_at_s = time.time()
        self.has_result = False
        self.result: Any = None  # as the task handed it in; judged at its end
        self.error: Optional[dict[str, str]] = None
        self.ending = ""  # why we end it, when we do
        self.exit_code: Optional[int] = None  # told by a worker that lives on
        self.metrics_offset = 0


class Sandbox:
    def __init__(self, name: str, mark: int) -> None:
        self.name = name
        self.work = ""
        self.mark = mark
        self.created_at_s = time.time()
        self.fresh = True  # the work directory is still to be made
        self.serves = False  # its process takes one task after another, and says when each is done
        self.clean = True  # nothing failed in it, so its files are not kept
        self.pid: Optional[int] = None
        self.status: Optional[int] = None  # wait status of a process that ended
        self.channel: Optional[int] = None  # on which its process talks
        self.heard = False  # the channel is registered
        self.received = b""
        self.run: Optional[Run] = None
        self.last = ""  # the newest run in it, also after that run ended
        self.closing = False
        self.told_open = False  # the end record of its last run says that it is open
        self.kill_at_s = 0.0  # monotonic; 0 = nobody asked it to end


def outcome(run: Run, status: Optional[int]) -> dict[str, Any]:
    """How the run ended: ok, reason, message and exit code, from what ended it, what it said and
    its status.
    """
    exit_code = run.exit_code
    if exit_code is None and status is not None:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    reason, message = "Completed", ""
    if run.ending:
        reason, message = run.ending, _ENDINGS.get(run.ending, "")
    elif run.error:
        reason, message = run.error["reason"], run.error["message"]
    elif status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        reason, message = f"Signal:{signal_name(number)}", f"ended by signal {number}"
    elif exit_code:
        reason, message = f"ExitCode:{exit_code}", ""
    return {"ok": reason == "Completed", "reason": reason, "message": message, "exit": exit_code}


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


_ENDINGS = {
    "Timeout": "it ran longer than timeoutSeconds",
    "OOMKilled": "its processes used more memory than resources.memory",
    "TooManyProcesses": "it had more processes than one run may have",
    "KeeperEnded": "the process that looks after local runs was told to end",
}
