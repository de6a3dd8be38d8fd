"""Explains why a sandbox of Daytona is over, or that it is not. Pure; called by
daytona_sandboxes.py with the answer of a look-up by id.

A run's outcome never comes from here: only its journal's end record has it. This sorts the
sandboxes that left no end record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

# No process runs in it any more, and never will again: its disk is still there and billed.
REMAINS = frozenset(("error", "build_failed", "stopped", "stopping", "archived", "archiving"))
GOING = "destroying"  # no process runs in it, but it is confirmed gone only when it is destroyed
GONE = "destroyed"
# A user or a policy holds it: its processes stand still, and it may go on.
PAUSED = frozenset(("pausing", "paused"))
ENDS_LABEL = "ends-at"  # when its TTL ends it, by the clock of who made it


@dataclass(frozen=True, slots=True)
class DaytonaFacts:
    """The known facts about a sandbox's end. state: "" when Daytona does not know the id. expired:
    its TTL has passed by our clock.
    """

    state: str
    ours: bool = False
    evicted: bool = False
    queue_timed_out: bool = False
    expired: bool = False
    error: str = ""


# The first that holds. Ends that we requested come first.
_RULES: tuple[tuple[Callable[[DaytonaFacts], bool], Cause], ...] = (
    (lambda facts: facts.ours, Cause.STOPPED),
    (lambda facts: facts.evicted, Cause.PREEMPTED),
    (lambda facts: facts.queue_timed_out, Cause.QUEUE),
    (lambda facts: facts.state in ("error", "build_failed"), Cause.FAILED),
    (lambda facts: facts.expired, Cause.TIMEOUT),
    # Another user may have done it, or a machine's end: Daytona does not distinguish the two.
    (lambda facts: facts.state != "", Cause.LOST),
    # Not known by id any more: Daytona forgets what was destroyed, whoever did it.
    (lambda _: True, Cause.UNKNOWN),
)


def state_of(sandbox: sdk.AsyncSandbox) -> str:
    return str(getattr(sandbox.state, "value", sandbox.state) or "unknown")


def is_over(state: str) -> bool:
    """Returns whether the end is confirmed: the sandbox is gone, or its rest only has to be
    deleted.
    """
    return not state or state == GONE or state in REMAINS


def is_listed(state: str) -> bool:
    """Returns whether its end was not requested yet."""
    return state not in (GOING, GONE)


def may_work(state: str) -> bool:
    return not is_over(state) and state != GOING


def resolve_fate(facts: DaytonaFacts) -> Fate | None:
    """Returns the sandbox's fate; None while it lives or may come to live."""
    if not is_over(facts.state):
        return None
    cause = next(cause for holds, cause in _RULES if holds(facts))
    return Fate(cause, facts.error if cause is Cause.FAILED else "")
