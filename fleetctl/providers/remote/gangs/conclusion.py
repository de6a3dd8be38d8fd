"""Combines the ends of all nodes into the end of their run, as journal records. Pure; called by
node_gang.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fleetctl.guest.nodes.outcome import CONSEQUENCE_S, NODE_LOST, state_of, whole_end
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

End = dict[str, Any]
ENDED = b'{"e":"ended"'
RESULT = b'{"e":"result"'
EOF = b'{"e":"eof"}\n'
CONSEQUENCE = "NodeEnded"  # for what another node did, or because node 0 was done
TERMINATED = "SandboxEnded"  # the pod was asked to end, and not by us
# Why a guest ends a run that did not end by itself.
STOPPED = "Stopped"
FROM_OUTSIDE = frozenset({STOPPED, "Timeout", "Stalled"})
_OF_ALL = ("ok", "infra", "reason", "message", "exit")


def end_in(journal: bytes) -> End | None:
    """Returns the end in a node's own journal; None while the journal has no end."""
    for line in reversed(journal.splitlines()):
        if line.startswith(ENDED):
            found: End = json.loads(line)
            return {**found, "at": found.get("left_at", found["at"])}
    return None


def lost_end(fate: Fate, at_s: float) -> End:
    """Returns the end of a node whose pod is over and has reported no end. A node that used up its
    memory failed by itself.
    """
    ours = fate.cause is Cause.STOPPED
    return {
        "at": at_s,
        "ok": False,
        "infra": not fate.own,
        "reason": CONSEQUENCE if ours else fate.cause.value,
        "message": fate.detail,
        "exit": fate.exit_code,
        "stopped": ours,
        "lost": not ours and fate.cause is not Cause.OUT_OF_MEMORY,
    }


def judge_ends(
    ends: Sequence[End],
    *,
    stopped_at_s: float | None,
    outside: bool,
    at_once: bool = False,
) -> list[End]:
    """Returns the ends of all nodes by rank; an end caused by another node's end is marked as a
    consequence.

    stopped_at_s: since when all were being ended, if they were; outside: by their limits or on
    request, and not because a node failed; at_once: whether the others end with node 0, however it
    ended, as Ray's workers do with their head.
    """
    leads = ends[0]["ok"] or at_once
    since_s = ends[0]["at"] if leads else stopped_at_s
    cause = None if ends[0]["ok"] else _first_preempted(ends)
    found = []
    for rank, end in enumerate(ends):
        after = since_s is not None and end["at"] >= since_s
        if end["ok"]:
            found.append(end)
        elif outside and (after or end["reason"] in FROM_OUTSIDE):
            found.append({**end, "outside": True, "lost": False})
        elif _is_preempted(end) and rank == cause:
            found.append({**end, "lost": True})
        elif (
            _is_preempted(end)
            or end["reason"] == STOPPED
            or (leads and after and rank)
            or _went_after(end, ends)
        ):
            found.append({**end, "stopped": True, "lost": False, "reason": CONSEQUENCE})
        else:
            found.append(end)
    return found


def _went_after(end: End, ends: Sequence[End]) -> bool:
    """Returns whether the node's pod is gone without a reason after another node had failed: the
    Job took it.
    """
    failed_s = min((it["at"] for it in ends if _by_itself(it)), default=float("inf"))
    return bool(end["reason"] == Cause.LOST.value and end["at"] > failed_s)


def _first_preempted(ends: Sequence[End]) -> int | None:
    """Returns the rank of the pod that the cluster took first; None where another one had failed
    long before, so that the Job took the others.
    """
    failed_s = min((end["at"] for end in ends if _by_itself(end)), default=float("inf"))
    taken = [(end["at"], rank) for rank, end in enumerate(ends) if _is_preempted(end)]
    at_s, rank = min(taken, default=(float("inf"), None))
    if at_s <= failed_s + CONSEQUENCE_S:
        return rank
    return None


def end_frames(
    ends: Sequence[End],
    addresses: Sequence[str],
    result: bytes,
) -> bytes:
    """The last lines of the run's journal, and the end of its story. ends: as judged; result: the
    line that node 0 handed in, or b"".
    """
    whole = whole_end(list(ends))
    if whole["reason"] == CONSEQUENCE:  # all were asked to end, and no node has a reason
        whole = {**whole, "infra": True, "reason": NODE_LOST, "message": "all nodes were ended"}
    last = {**ends[0], **{name: whole[name] for name in _OF_ALL}}
    for name in ("lost", "stopped", "outside", "node"):
        last.pop(name, None)
    if whole.get("node"):
        last["node"] = whole["node"]
    last["open"] = False
    table = _json_line({"e": "nodes", "at": ends[0]["at"], "nodes": node_rows(ends, addresses)})
    return (result if whole["ok"] else b"") + table + _json_line({"e": "ended", **last}) + EOF


def node_rows(ends: Sequence[End | None], addresses: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for each node, by rank."""
    return [
        {
            "state": state_of(end),
            "address": address,
            **({"reason": end["reason"], "exit": end["exit"]} if end is not None else {}),
        }
        for end, address in zip(ends, addresses, strict=True)
    ]


def begin_line(handle: str, at_s: float) -> bytes:
    """Returns the first line of a journal of which node 0 left no line."""
    return _json_line({"e": "started", "at": at_s, "keeper": handle, "note": ""})


def _is_preempted(end: End) -> bool:
    return not end["ok"] and end["reason"] == TERMINATED


def _by_itself(end: End) -> bool:
    ended = end.get("lost") or end.get("stopped") or _is_preempted(end)
    return not (end["ok"] or ended or end["reason"] in FROM_OUTSIDE)


def _json_line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
