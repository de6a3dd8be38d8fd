"""Whether a run still gets on: something new within a time. And how to ask one that does not where
it hangs. Called once a second by whoever keeps the run.
"""

from __future__ import annotations

import time

from fleetctl.guest.supervision.processes import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Mapping, Optional

STACKS_SIGNAL = 46  # as library/sitecustomize.py registers it
STALLED = "Stalled"
STACKS_S = 1.0  # for processes to write their stacks, before they are told to end


class Pace:
    def __init__(self, asked: Mapping[str, float], now_s: float) -> None:
        """asked: `timeout_s`, and `start_s` until the first step or checkpoint; in monotonic s."""
        self._timeout_s, self._start_s = asked["timeout_s"], asked["start_s"]
        self._since_s = now_s
        self._signs: Optional[tuple[int, int, int]] = None

    def stalled(self, now_s: float, signs: tuple[int, int, int]) -> bool:
        """signs: the highest step that it reported, -1 for none; how many checkpoints it completed;
        bytes of output. What it says while it loads and compiles is not a step.
        """
        if signs != self._signs:
            self._signs, self._since_s = signs, now_s
        begun = signs[0] >= 0 or signs[1] > 0
        limit_s = self._timeout_s if begun else max(self._start_s, self._timeout_s)
        return now_s - self._since_s >= limit_s


def ends_in_s(
    pace: Pace,
    signs: tuple[int, int, int],
    *,
    say: Callable[[str], None],
    pids: Callable[[], Iterable[int]],
) -> Optional[float]:
    """Seconds after which a task that hangs is to be told to end; None while it gets on. It says
    before where it hangs.

    signs: as `stalled` takes them; pids: its processes.
    """
    if not pace.stalled(time.monotonic(), signs):
        return None
    say(f"{STALLED}: nothing new for too long, see `progress`; it is being ended")
    return STACKS_S if ask_for_stacks(pids()) else 0.0


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
