"""Decides when `apply --wait` gives up: once no event that is to come can help the objects on.
Called by progress.py with fresh views; the status of an object names its lack
(controllers/schedule/stuck.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleetctl.common.clock import Clock, SystemClock
from fleetctl.common.deadline import Deadline
from fleetctl.common.text import escape_line
from fleetctl.views.objects import View

MISSING = "missing"
CAPACITY = "capacity"
ACCOUNT = "account"
# An object that was applied just now may fix it, and the next look of the controller is due.
STUCK_S = 3.0
# A service's single error is no reason; the request is repeated several times in that time.
ACCOUNT_S = 60.0


class StuckPolicy:
    """The state of the wait. waits_for: lacks that the user accepts to wait for."""

    def __init__(self, waits_for: Collection[str] = (), clock: Clock | None = None) -> None:
        self._waits_for = frozenset(waits_for)
        self._clock = clock or SystemClock()
        self._ends: Deadline | None = None

    def ended(self, unfinished: Sequence[View]) -> bool:
        """Returns true where all objects have lacked something for long enough."""
        lacks = [lack_of(view) for view in unfinished]
        if not all(lacks) or any(lack in self._waits_for for lack in lacks):
            self._ends = None
            return False
        if self._ends is None:
            span_s = ACCOUNT_S if ACCOUNT in lacks else STUCK_S
            self._ends = Deadline(span_s, self._clock)
        return self._ends.passed


def lack_of(seen: View) -> str:
    """Returns its lack as one word; empty while it makes progress."""
    if seen.current:
        return str(seen.map("stuck").get("lack") or "")
    return ""


def describe_stuck(seen: View) -> str:
    """Returns its lack as a sentence, for an error."""
    stuck = seen.map("stuck")
    return escape_line(
        f"{seen.key} cannot go on by itself: {stuck.get('reason')}: {stuck.get('message')}"
    )


def way_out(seen: View) -> str:
    """Returns a remedy, and the flag to wait all the same."""
    hint = str(seen.map("stuck").get("hint") or f"fleetctl describe {seen.key}")
    flag = {MISSING: "--allow-missing", CAPACITY: "--wait-for-capacity"}.get(lack_of(seen), "")
    return escape_line(f"{hint}; `--wait {flag}` waits on" if flag else hint)
