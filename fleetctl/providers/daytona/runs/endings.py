"""Why a sandbox of Daytona is over, or that it is not. Pure; called by sandboxes.py with what a
look-up by id said.

A run's outcome never comes from here: only its journal's end record tells that. This sorts the
sandboxes that left none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

if TYPE_CHECKING:
    import daytona

# Nothing runs in it any more, and nothing ever will again: what it holds is still there and billed.
REMAINS = frozenset(("error", "build_failed", "stopped", "stopping", "archived", "archiving"))
GOING = "destroying"  # nothing runs in it, but it is confirmed gone only when it is destroyed
GONE = "destroyed"
# A person or a policy holds it: nothing in it moves, and it may go on.
PAUSED = frozenset(("pausing", "paused"))
ENDS_LABEL = "ends-at"  # when its TTL ends it, by the clock of who made it


@dataclass(frozen=True, slots=True)
class Facts:
    """state: "" when Daytona does not know the id. expired: its TTL has passed by our clock."""

    state: str
    ours: bool = False
    evicted: bool = False
    queue_timed_out: bool = False
    expired: bool = False
    error: str = ""


# The first that holds. What we asked for comes first.
_RULES: tuple[tuple[Callable[[Facts], bool], Cause], ...] = (
    (lambda facts: facts.ours, Cause.STOPPED),
    (lambda facts: facts.evicted, Cause.PREEMPTED),
    (lambda facts: facts.queue_timed_out, Cause.QUEUE),
    (lambda facts: facts.state in ("error", "build_failed"), Cause.FAILED),
    (lambda facts: facts.expired, Cause.TIMEOUT),
    # Somebody may have done it, or a machine's end: Daytona does not tell one from the other.
    (lambda facts: facts.state != "", Cause.LOST),
    # Not known by id any more: Daytona forgets what was destroyed, whoever did it.
    (lambda _: True, Cause.UNKNOWN),
)


def state_of(sandbox: daytona.AsyncSandbox) -> str:
    return str(getattr(sandbox.state, "value", sandbox.state) or "unknown")


def is_over(state: str) -> bool:
    """Confirmed: it is gone, or what is left of it only has to be deleted."""
    return not state or state == GONE or state in REMAINS


def is_listed(state: str) -> bool:
    """Nobody has asked for its end yet."""
    return state not in (GOING, GONE)


def may_work(state: str) -> bool:
    return not is_over(state) and state != GOING


def fate(facts: Facts) -> Fate | None:
    """What became of the sandbox; None while it lives or may come to live."""
    if not is_over(facts.state):
        return None
    cause = next(cause for holds, cause in _RULES if holds(facts))
    return Fate(cause, facts.error if cause is Cause.FAILED else "")
