"""Finds the node that falls behind the others, by when each reports its steps. Pure; called by the
supervisor of the nodes.

Where nodes wait for each other at every step, all report when the slowest does, and no node appears
late: this is for work whose nodes step by themselves, or that report before they wait.
"""

from __future__ import annotations

from statistics import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Optional

STEPS = 20  # how many of the newest steps, reported by other nodes too, count
BEHIND_TIMES = 2.0  # times the median lag of the others
BEHIND_MIN_S = 2.0  # reports are looked for once a second


class Stragglers:
    """Reports each straggler once an attempt."""

    def __init__(self) -> None:
        self._named: set[int] = set()

    def find_new(self, nodes: Sequence[Mapping[int, float]], now_s: float) -> Optional[str]:
        """Returns a sentence about a new straggler. nodes: by rank, when each first reported a
        step, for its newest STEPS and more; now_s: by the same clock.
        """
        found = behind(nodes, now_s)
        if found is None or found[0] in self._named:
            return None
        rank, late_s = found
        self._named.add(rank)
        return f"node {rank}: {late_s:.1f} s behind"


def behind(nodes: Sequence[Mapping[int, float]], now_s: float) -> Optional[tuple[int, float]]:
    """Returns (rank, seconds) of the node that is far behind the others, by the median of the last
    steps; None where all keep up, or too little is known.

    Far is more than a whole step, than BEHIND_MIN_S, and than BEHIND_TIMES the lag of the others
    behind the first. For a step that a node has not reached, its lag is that of its next step, up
    to now.
    """
    if len(nodes) < 2 or not all(nodes):
        return None
    oldest = max(min(times) for times in nodes)  # the first that is known for all nodes
    steps = sorted({step for times in nodes for step in times if step >= oldest})
    # A step that one node alone has reached shows that it is fast, not that the others are slow.
    enough = len(nodes) // 2 + 1 if len(nodes) > 2 else 1
    common = [step for step in steps if sum(step in times for times in nodes) >= enough][-STEPS:]
    if len(common) < STEPS:
        return None
    firsts = {step: min(times[step] for times in nodes if step in times) for step in steps}
    lags = [_median_lag_s(times, firsts, common, now_s) for times in nodes]
    rank = max(range(len(lags)), key=lambda one: lags[one])
    others = median(lag for one, lag in enumerate(lags) if one != rank)
    step_s = (firsts[common[-1]] - firsts[common[0]]) / (STEPS - 1)
    if lags[rank] < max(BEHIND_MIN_S, step_s) or lags[rank] < BEHIND_TIMES * others:
        return None
    return rank, lags[rank]


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
