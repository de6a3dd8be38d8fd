"""Classifies the end of a run. Pure; called by the run's supervisor."""

from __future__ import annotations

import os

from fleetctl.guest.task.program import DISK_FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MESSAGES = {
    "TooManyProcesses": "it had more processes than one run may have",
    "KeeperEnded": "the process that looks after local runs was asked to end",
    "Stalled": "it had no new step, checkpoint or output for as long as `progress` allows",
    "SandboxEnded": "its sandbox was asked to end",
    "NodesNotReady": "not all of its nodes were ready to begin in time",
}
# Ends that the task did not cause.
INFRASTRUCTURE = frozenset(
    {"KeeperEnded", "SandboxEnded", "SourceFailed", "GuestFailed", "NodesNotReady", DISK_FULL}
)


def decide_outcome(
    why: str,
    error: Optional[dict[str, str]],
    exit_code: Optional[int],
    status: Optional[int],
    limits: Optional[dict[str, Any]] = None,
) -> dict[str, Any]:
    """Returns the fields ok, reason, message, exit and infra of an end record.

    why: our own reason to end the run, or ""; error: the problem that the task's process reported;
    exit_code: from a worker that lives on; status: the wait status of a process that ended;
    limits: the run's `timeout_s` and `memory`, and the memory `used` at its end, 0 = not known.
    """
    limits = limits or {}
    if exit_code is None and status is not None:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    reason = "Completed"
    message = ""
    if why:
        reason = why
        message = MESSAGES.get(why, "")
        if why == "Timeout":
            message = timed_out(limits.get("timeout_s"))
        elif why == "OOMKilled":
            message = describe_memory_excess(limits.get("memory"), limits.get("used"))
    elif error:
        reason = error["reason"]
        message = error["message"]
        if reason == "OOMKilled" and limits.get("memory"):
            message += f"; resources.memory is {size_text(limits['memory'])}"
        elif reason == "OOMKilled":
            reason = "Error"  # a MemoryError of its own making
    elif status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        reason = f"Signal:{signal_name(number)}"
        message = f"ended by signal {number}"
    elif exit_code:
        reason = f"ExitCode:{exit_code}"
    return {
        "ok": reason == "Completed",
        "infra": reason in INFRASTRUCTURE,
        "reason": reason,
        "message": message,
        "exit": exit_code,
    }


def timed_out(timeout_s: Optional[float]) -> str:
    limit = f", which is {timeout_s:g}" if timeout_s else ""
    return f"it ran longer than timeoutSeconds{limit}"


def describe_memory_excess(memory: Optional[int], used: Optional[int]) -> str:
    if not memory or not used:
        return "its processes used more memory than resources.memory"
    return (
        f"its processes used {size_text(used)} of memory; resources.memory is {size_text(memory)}"
    )


def size_text(size: int) -> str:
    """Formats a size as manifests write it: `4Gi`, `100Mi`."""
    for unit, name in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if size >= unit and (size % unit == 0 or unit < 1 << 30):
            return f"{size / unit:.0f}{name}"
    return str(size)


def signal_name(number: int) -> str:
    import signal  # not at the top: its enums cost more than the rest of a short run's end

    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)
