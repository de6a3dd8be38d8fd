"""When `apply --wait` gives up: once nothing that is on its way can get the objects on. Called by
progress.py with fresh views; what an object lacks, its status says (controllers/schedule/stuck.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleetctl.common.clock import Clock, SystemClock
from fleetctl.common.deadline import Deadline
from fleetctl.common.text import safe
from fleetctl.views.objects import View

MISSING, CAPACITY, ACCOUNT = "missing", "capacity", "account"
# What was applied just now may mend it, and the next look of the controller is on its way.
STUCK_S = 3.0
# A service's single odd answer decides nothing; it is asked again several times in that time.
ACCOUNT_S = 60.0


class Patience:
    """waits_for: lacks that a person said to wait for."""

    def __init__(self, waits_for: Collection[str] = (), clock: Clock | None = None) -> None:
        self._waits_for = frozenset(waits_for)
        self._clock = clock or SystemClock()
        self._ends: Deadline | None = None

    def ended(self, unfinished: Sequence[View]) -> bool:
        """Whether all of them have lacked something for long enough."""
        lacks = [lack_of(view) for view in unfinished]
        if not all(lacks) or any(lack in self._waits_for for lack in lacks):
            self._ends = None
            return False
        if self._ends is None:
            span_s = ACCOUNT_S if ACCOUNT in lacks else STUCK_S
            self._ends = Deadline(span_s, self._clock)
        return self._ends.passed


def lack_of(seen: View) -> str:
    """One word; empty while it gets on."""
    return str(seen.map("stuck").get("lack") or "") if seen.current else ""


def sentence(seen: View) -> str:
    """What it lacks, for an error."""
    stuck = seen.map("stuck")
    return safe(f"{seen.key} cannot go on by itself: {stuck.get('reason')}: {stuck.get('message')}")


def way_out(seen: View) -> str:
    """What would help, and how to wait all the same."""
    hint = str(seen.map("stuck").get("hint") or f"fleetctl describe {seen.key}")
    flag = {MISSING: "--allow-missing", CAPACITY: "--wait-for-capacity"}.get(lack_of(seen), "")
    return safe(f"{hint}; `--wait {flag}` waits on" if flag else hint)
