"""Notices that a run no longer makes progress within a time, and makes it write where it hangs.
Called once a second by the run's supervisor.
"""

from __future__ import annotations

import time

from fleetctl.guest.supervision.processes import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Mapping, Optional

STACKS_SIGNAL = 46  # as library/sitecustomize.py registers it
STALLED = "Stalled"
STACKS_S = 1.0  # for processes to write their stacks, before they get TERM
LOOK_S_MAX = 3.0  # that one look counts; a machine that slept or starved did not see its task hang


class Pace:
    def __init__(self, asked: Mapping[str, float], now_s: float) -> None:
        """asked: `timeout_s`, and `start_s` until the first step or checkpoint; in monotonic s."""
        self._timeout_s, self._start_s = asked["timeout_s"], asked["start_s"]
        self._looked_s = now_s
        self._quiet_s = 0.0
        self._signs: Optional[tuple[int, int, int]] = None

    def stalled(self, now_s: float, signs: tuple[int, int, int]) -> bool:
        """Returns whether the time without progress is over.

        signs: the highest step that it reported, -1 for none; how many checkpoints it completed;
        bytes of output. Output while it loads and compiles is not a step.
        """
        if signs == self._signs or self._signs is None:
            self._quiet_s += min(now_s - self._looked_s, LOOK_S_MAX)
        else:
            self._quiet_s = 0.0
        self._looked_s, self._signs = now_s, signs
        begun = signs[0] >= 0 or signs[1] > 0
        limit_s = self._timeout_s if begun else max(self._start_s, self._timeout_s)
        return self._quiet_s >= limit_s


def ends_in_s(
    pace: Pace,
    signs: tuple[int, int, int],
    *,
    say: Callable[[str], None],
    pids: Callable[[], Iterable[int]],
) -> Optional[float]:
    """Returns the seconds until a hanging task has to be ended; None while it makes progress. The
    task writes its stack traces before.

    signs: as `stalled` takes them; pids: its processes.
    """
    if not pace.stalled(time.monotonic(), signs):
        return None
    say(f"{STALLED}: nothing new for too long, see `progress`; it is being ended")
    if ask_for_stacks(pids()):
        return STACKS_S
    return 0.0


def ask_for_stacks(pids: Iterable[int]) -> int:
    """Makes Python processes write their stacks into the log; returns how many got the signal. It
    is not sent to processes that it would kill.
    """
    asked = 0
    for pid in pids:
        if _has_handler(pid) and send(pid, STACKS_SIGNAL):
            asked += 1
    return asked


def _has_handler(pid: int) -> bool:
    """Returns whether the process has a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False
    return False
