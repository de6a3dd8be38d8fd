"""How the end of a run is called. Pure; called by whoever keeps the run."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MESSAGES = {
    "Timeout": "it ran longer than timeoutSeconds",
    "OOMKilled": "its processes used more memory than resources.memory",
    "TooManyProcesses": "it had more processes than one run may have",
    "KeeperEnded": "the process that looks after local runs was told to end",
    "SandboxEnded": "its sandbox was told to end",
}
# What ended these was not the task.
INFRASTRUCTURE = frozenset({"KeeperEnded", "SandboxEnded", "SourceFailed", "GuestFailed"})


def outcome(
    why: str,
    error: Optional[dict[str, str]],
    exit_code: Optional[int],
    status: Optional[int],
) -> dict[str, Any]:
    """The fields ok, reason, message, exit and infra of an end record.

    why: the reason for which we ended it, or ""; error: what the task's own process said went
    wrong; exit_code: told by a worker that lives on; status: the wait status of a process that
    does not.
    """
    if exit_code is None and status is not None:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    reason, message = "Completed", ""
    if why:
        reason, message = why, MESSAGES.get(why, "")
    elif error:
        reason, message = error["reason"], error["message"]
    elif status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        reason, message = f"Signal:{signal_name(number)}", f"ended by signal {number}"
    elif exit_code:
        reason = f"ExitCode:{exit_code}"
    return {
        "ok": reason == "Completed",
        "infra": reason in INFRASTRUCTURE,
        "reason": reason,
        "message": message,
        "exit": exit_code,
    }


def signal_name(number: int) -> str:
    import signal  # not at the top: its enums cost more than the rest of a short run's end

    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)
