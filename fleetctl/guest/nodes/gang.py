"""Several nodes of one attempt: the names of their files, the variables that their programs read,
the one that falls behind, and their one end. Pure.

A single node gets no such variable, or plain scripts would become distributed by accident.

Stragglers can be seen only where nodes step by themselves, or report before they wait: where nodes
wait for each other at every step, all report when the slowest does, and no node appears late.
"""

from __future__ import annotations

import re
from statistics import median

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Optional


INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")

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

STEPS = 20  # how many of the newest steps, reported by other nodes too, count
BEHIND_TIMES = 2.0  # times the median lag of the others
BEHIND_MIN_S = 2.0  # reports are looked for once a second


def node_name(run: str, node: int) -> str:
    if node:
        return f"{run}.n{node}"
    return run


def strip_node(name: str) -> str:
    """Returns the run's name, given that of any of its nodes."""
    if is_node_name(name):
        return name.rpartition(".n")[0]
    return name


def node_of(name: str) -> int:
    """Returns the rank of a file's node; 0 for a run's own."""
    if is_node_name(name):
        return int(name.rpartition(".n")[2])
    return 0


def is_node_name(name: str) -> bool:
    """Returns whether the name is a further node's; no run has such a name."""
    return re.search(r"\.n[1-9][0-9]*$", name) is not None


def build_node_variables(
    rank: int,
    addresses: Sequence[str],
    port: int,
    procs: int,
    interface: str = "",
) -> dict[str, str]:
    """Returns the variables of node `rank`. addresses: of all nodes, by rank, as their peers reach
    them; port: a free one of node 0; procs: processes of a launcher on each node; interface: the
    one that leads to the peers, where libraries would not find it.
    """
    count = len(addresses)
    if count == 1:
        return {}
    head = addresses[0]
    values = {
        "MASTER_ADDR": head,
        "MASTER_PORT": str(port),
        "NODE_RANK": str(rank),
        # As in pods of an Indexed Job: programs written for such pods read their rank there.
        "JOB_COMPLETION_INDEX": str(rank),
        "NNODES": str(count),
        "FLEETCTL_NODE_RANK": str(rank),
        "FLEETCTL_NODES": str(count),
        "FLEETCTL_NODE_IPS": "\n".join(addresses),
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": str(procs),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": head,
        "PET_MASTER_PORT": str(port),
        # torchrun's own restarts do not go together with the static meeting of several nodes.
        "PET_MAX_RESTARTS": "0",
        "JAX_COORDINATOR_ADDRESS": f"[{head}]:{port}" if ":" in head else f"{head}:{port}",
    }
    if procs == 1:
        # For `python train.py` without a launcher.
        values.update(
            RANK=str(rank),
            WORLD_SIZE=str(count),
            LOCAL_RANK="0",
            LOCAL_WORLD_SIZE="1",
        )
    return {**values, **dict.fromkeys(INTERFACES if interface else (), interface)}


def build_group_variables(
    own: Mapping[str, Any],
    rank: int,
    groups: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    """Returns the variables of node `rank` of the group `own`, of a run with groups. Each group has
    `name`, `addresses` of its nodes by rank, each with its port where the group has one, and
    `hosts` and `ports`, where its nodes listen.
    """
    values = {
        "FLEETCTL_GROUP": str(own["name"]),
        "FLEETCTL_GROUP_RANK": str(rank),
        "FLEETCTL_GROUP_NODES": str(len(own["addresses"])),
        "FLEETCTL_GROUP_HOST": str(own["hosts"][rank]),
    }
    if own["ports"]:
        values["FLEETCTL_GROUP_PORT"] = str(own["ports"][rank])
    for group in groups:
        word = re.sub("[^A-Z0-9]", "_", str(group["name"]).upper())
        values[f"FLEETCTL_GROUP_{word}_ADDRESSES"] = "\n".join(group["addresses"])
    return values


def combine_ends(ends: Sequence[dict[str, Any]]) -> dict[str, Any]:
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


class Stragglers:
    """Reports each straggler once an attempt."""

    def __init__(self) -> None:
        self._named: set[int] = set()

    def find_new(self, nodes: Sequence[Mapping[int, float]], now_s: float) -> Optional[str]:
        """Returns a sentence about a new straggler. nodes: by rank, when each first reported a
        step, for its newest STEPS and more; now_s: by the same clock.
        """
        found = find_straggler(nodes, now_s)
        if found is None or found[0] in self._named:
            return None
        rank, late_s = found
        self._named.add(rank)
        return f"node {rank}: {late_s:.1f} s behind"


def find_straggler(
    nodes: Sequence[Mapping[int, float]], now_s: float
) -> Optional[tuple[int, float]]:
    """Returns (rank, seconds) of the node that is far behind the others, by the median of the last
    steps; None where all keep up, or too little is known.

    Far is more than a whole step, than BEHIND_MIN_S, and than BEHIND_TIMES the lag of the others
    behind the first. For a step that a node has not reached, its lag is that of its next step, up
    to now.
    """
    if len(nodes) < 2 or not all(nodes):
        return None
    firsts = _first_times(nodes)
    common = _common_steps(nodes, sorted(firsts))
    if len(common) < STEPS:
        return None

    lags = [_median_lag_s(times, firsts, common, now_s) for times in nodes]
    lag_s = max(lags)
    rank = lags.index(lag_s)
    others_s = median(lags[:rank] + lags[rank + 1 :])
    step_s = (firsts[common[-1]] - firsts[common[0]]) / (STEPS - 1)
    if lag_s < max(BEHIND_MIN_S, step_s, BEHIND_TIMES * others_s):
        return None
    return rank, lag_s


def _first_times(nodes: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Returns when the first node reached each step, from the first step that is known of all
    nodes.
    """
    oldest = max(min(times) for times in nodes)
    firsts: dict[int, float] = {}
    for times in nodes:
        for step, at_s in times.items():
            if step >= oldest:
                firsts[step] = min(at_s, firsts.get(step, at_s))
    return firsts


def _common_steps(nodes: Sequence[Mapping[int, float]], steps: Sequence[int]) -> list[int]:
    """Returns the last steps that most nodes have reached."""
    # A step that one node alone has reached shows that it is fast, not that the others are slow.
    enough = len(nodes) // 2 + 1 if len(nodes) > 2 else 1
    common = [step for step in steps if sum(step in times for times in nodes) >= enough]
    return common[-STEPS:]


def _median_lag_s(
    times: Mapping[int, float],
    firsts: Mapping[int, float],
    steps: Sequence[int],
    now_s: float,
) -> float:
    """Returns the median seconds of a node behind the first, over `steps`."""
    newest = max(times)
    waits_since_s = min((at for step, at in firsts.items() if step > newest), default=now_s)
    return median(
        times[step] - firsts[step] if step in times else now_s - waits_since_s for step in steps
    )
