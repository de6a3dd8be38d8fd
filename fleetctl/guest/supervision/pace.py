"""Whether a run still gets on: something new within a time. And how to ask one that does not where
it hangs. Called once a second by whoever keeps the run.
"""

from __future__ import annotations

from fleetctl.guest.supervision.processes import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, Optional

STACKS_SIGNAL = 46  # as library/sitecustomize.py registers it
STALLED = "Stalled"
STACKS_S = 1.0  # for processes to write their stacks, before they are told to end


class Pace:
    def __init__(self, asked: Mapping[str, float], now_s: float) -> None:
        """asked: `timeout_s`, and `start_s` until the first step or checkpoint; in monotonic s."""
        self._timeout_s, self._start_s = asked["timeout_s"], asked["start_s"]
        self._since_s = now_s
        self._signs: Optional[tuple[int, int, int]] = None

    def stalled(self, now_s: float, *, step: int, checkpoints: int, output: int) -> bool:
        """step: the highest that it reported, -1 for none; checkpoints: how many it completed;
        output: bytes. What it says while it loads and compiles is no step.
        """
        signs = (step, checkpoints, output)
        if signs != self._signs:
            self._signs, self._since_s = signs, now_s
        begun = step >= 0 or checkpoints > 0
        limit_s = self._timeout_s if begun else max(self._start_s, self._timeout_s)
        return now_s - self._since_s >= limit_s


def ask_for_stacks(pids: Iterable[int]) -> int:
    """Let Python processes write their stacks into the log; how many were asked. Nobody is asked
    who would die of it.
    """
    asked = 0
    for pid in pids:
        if _catches(pid) and send(pid, STACKS_SIGNAL):
            asked += 1
    return asked


def _catches(pid: int) -> bool:
    """Whether it has a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False
    return False
