"""Which of several nodes falls behind the others, by when each reports its steps. Pure; asked by
whoever keeps the nodes.

Where nodes wait for each other at every step, all report when the slowest does, and nobody is seen
to be behind: this is of work whose nodes step by themselves, or that report before they wait.
"""

from __future__ import annotations

from statistics import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Optional

STEPS = 20  # the last so many that another node has reported are looked at
BEHIND_TIMES = 2.0  # the middle of how far the others are
BEHIND_MIN_S = 2.0  # reports are looked for once a second


class Stragglers:
    """Each node is named once an attempt."""

    def __init__(self) -> None:
        self._named: set[int] = set()

    def news(self, nodes: Sequence[Mapping[int, float]], now_s: float) -> Optional[str]:
        """A sentence about one that has fallen behind since. nodes: by rank, when each first
        reported a step, of its newest STEPS and more; now_s: by the same clock.
        """
        found = behind(nodes, now_s)
        if found is None or found[0] in self._named:
            return None
        rank, late_s = found
        self._named.add(rank)
        return f"node {rank}: {late_s:.1f} s behind"


def behind(nodes: Sequence[Mapping[int, float]], now_s: float) -> Optional[tuple[int, float]]:
    """(rank, seconds) of the node that is far behind the others, in the middle of the last steps;
    None where none is, or too little is known.

    Far is more than a whole step, than BEHIND_MIN_S, and than BEHIND_TIMES what the others are
    behind the first. A node that has not come to a step is so late as it is with its next one, up
    to now.
    """
    if len(nodes) < 2 or not all(nodes):
        return None
    oldest = max(min(times) for times in nodes)  # of what is known of all
    steps = sorted({step for times in nodes for step in times if step >= oldest})
    # A step that one node alone has reached says that it is fast, not that the others are slow.
    enough = len(nodes) // 2 + 1 if len(nodes) > 2 else 1
    common = [step for step in steps if sum(step in times for times in nodes) >= enough][-STEPS:]
    if len(common) < STEPS:
        return None
    firsts = {step: min(times[step] for times in nodes if step in times) for step in steps}
    lags = [_lag(times, firsts, common, now_s) for times in nodes]
    rank = max(range(len(lags)), key=lambda one: lags[one])
    others = median(lag for one, lag in enumerate(lags) if one != rank)
    step_s = (firsts[common[-1]] - firsts[common[0]]) / (STEPS - 1)
    if lags[rank] < max(BEHIND_MIN_S, step_s) or lags[rank] < BEHIND_TIMES * others:
        return None
    return rank, lags[rank]


def _lag(
    times: Mapping[int, float], firsts: Mapping[int, float], steps: Sequence[int], now_s: float
) -> float:
    """How many seconds one node is behind whoever was first, in the middle of `steps`."""
    newest = max(times)
    waits_since_s = min((at for step, at in firsts.items() if step > newest), default=now_s)
    return median(
        times[step] - firsts[step] if step in times else now_s - waits_since_s for step in steps
    )
