"""Combines the ends of several nodes to one end of the attempt. Pure; called by the supervisor of
the nodes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Errors that come so soon after the loss of a node are its consequence: a broken connection.
CONSEQUENCE_S = 60.0
# The kernel ends processes by these, never a peer's failure; nodes see an end some time after it.
BY_KERNEL = frozenset({"Signal:KILL", "OOMKilled"})
SEEN_LATE_S = 5.0
NODE_LOST = "NodeLost"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
LOST = "Lost"
STOPPED = "Stopped"


def whole_end(ends: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the fields of the attempt's end record, given those of all nodes by rank.

    Each has `ok`, `infra`, `reason`, `message`, `exit` and `at`; `stopped` where another node's end
    was the cause, `outside` where all were ended, and `lost` where its machine disappeared. First
    match wins:

    - a lost node makes the attempt lost, whatever the others ended with soon after;
    - node 0 decides success;
    - else the first failure by the node's own clock gives the reason and the rank; a node
      that the kernel ended at about that time goes before those that ended by themselves;
    - else all were ended from outside, and node 0 gives the reason.
    """
    failed = [rank for rank, end in enumerate(ends) if _has_failed(end)]
    first = min(failed, key=lambda rank: (_failed_at(ends[rank]), rank), default=None)
    lost = [rank for rank, end in enumerate(ends) if end.get("lost")]
    if lost and (first is None or ends[lost[0]]["at"] <= ends[first]["at"] + CONSEQUENCE_S):
        return _of_lost(ends, lost[0])
    if ends[0]["ok"] or first is None:
        return dict(ends[0])
    return {**ends[first], **({"node": first} if first else {})}


def _has_failed(end: dict[str, Any]) -> bool:
    return not (end["ok"] or end.get("stopped") or end.get("outside") or end.get("lost"))


def _failed_at(end: dict[str, Any]) -> float:
    at: float = end["at"]
    if end["reason"] in BY_KERNEL:
        return at - SEEN_LATE_S
    return at


def _of_lost(ends: Sequence[dict[str, Any]], rank: int) -> dict[str, Any]:
    codes = [f"node {n}: {end['reason']}" for n, end in enumerate(ends) if _has_failed(end)]
    after = f"; the others ended after it with {', '.join(codes)}" if codes else ""
    return {
        **ends[rank],
        "ok": False,
        "infra": True,
        "reason": NODE_LOST,
        "message": f"node {rank} was lost{after}",
        "exit": None,
    }


def state_of(end: dict[str, Any] | None) -> str:
    """Returns the state of a node; None: it has not ended."""
    if end is None:
        return RUNNING
    if end.get("lost"):
        return LOST
    if end.get("stopped") or end.get("outside"):
        return STOPPED
    if end["ok"]:
        return SUCCEEDED
    return FAILED
