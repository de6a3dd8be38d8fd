"""How the end of a run is called. Pure; called by whoever keeps the run."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MESSAGES = {
    "TooManyProcesses": "it had more processes than one run may have",
    "KeeperEnded": "the process that looks after local runs was told to end",
    "Stalled": "it had no new step, checkpoint or output for as long as `progress` allows",
    "SandboxEnded": "its sandbox was told to end",
    "NodesNotReady": "not all of its nodes were ready to begin in time",
}
# What ended these was not the task.
INFRASTRUCTURE = frozenset(
    {"KeeperEnded", "SandboxEnded", "SourceFailed", "GuestFailed", "NodesNotReady"}
)


def outcome(
    why: str,
    error: Optional[dict[str, str]],
    exit_code: Optional[int],
    status: Optional[int],
    limits: Optional[dict[str, Any]] = None,
) -> dict[str, Any]:
    """The fields ok, reason, message, exit and infra of an end record.

    why: the reason for which we ended it, or ""; error: what the task's own process said went
    wrong; exit_code: told by a worker that lives on; status: the wait status of a process that
    does not; limits: what the run had as `timeout_s` and `memory`, and of the latter what it `used`
    when it was ended, 0 = not known.
    """
    limits = limits or {}
    if exit_code is None and status is not None:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    reason, message = "Completed", ""
    if why:
        reason, message = why, MESSAGES.get(why, "")
        if why == "Timeout":
            message = timed_out(limits.get("timeout_s"))
        elif why == "OOMKilled":
            message = over_memory(limits.get("memory"), limits.get("used"))
    elif error:
        reason, message = error["reason"], error["message"]
        if reason == "OOMKilled" and limits.get("memory"):
            message += f"; resources.memory is {size_text(limits['memory'])}"
        elif reason == "OOMKilled":
            reason = "Error"  # a MemoryError of its own making
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


def timed_out(timeout_s: Optional[float]) -> str:
    limit = f", which is {timeout_s:g}" if timeout_s else ""
    return f"it ran longer than timeoutSeconds{limit}"


def over_memory(memory: Optional[int], used: Optional[int]) -> str:
    if not memory or not used:
        return "its processes used more memory than resources.memory"
    return (
        f"its processes used {size_text(used)} of memory; resources.memory is {size_text(memory)}"
    )


def size_text(size: int) -> str:
    """A size as manifests write it: `4Gi`, `100Mi`."""
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
