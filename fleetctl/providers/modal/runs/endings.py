"""Why a sandbox of Modal is over. Pure; called by sandboxes.py with what the SDK said.

A run's outcome never comes from here: only its journal's end record tells that. This sorts the
sandboxes that left none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

KILLED = 137  # 128 + SIGKILL: what a container's memory limit leaves, and any other kill


@dataclass(frozen=True, slots=True)
class Facts:
    """timed_out and terminated: what `wait()` raised; without either, code is the entrypoint's.

    ours: we asked for its end. preemptible: it had a GPU, and only those are preempted.
    """

    code: int
    timed_out: bool = False
    terminated: bool = False
    ours: bool = False
    preemptible: bool = False


# The first that holds. What we asked for comes first: a terminate looks like a kill.
_RULES: tuple[tuple[Callable[[Facts], bool], Cause], ...] = (
    (lambda facts: facts.ours, Cause.STOPPED),
    (lambda facts: facts.timed_out, Cause.TIMEOUT),
    (lambda facts: facts.terminated, Cause.TERMINATED),
    # Of a machine that it takes away Modal tells no code of a program. A kill might be that, too;
    # who has no memory must be told so, or it is tried again in vain on each machine.
    (lambda facts: facts.code == KILLED, Cause.OUT_OF_MEMORY),
    (lambda facts: facts.preemptible, Cause.PREEMPTED),
    # Also code 0: Modal has put it on sandboxes that its own failures ended.
    (lambda _: True, Cause.LOST),
)


def fate(facts: Facts) -> Fate:
    cause = next(cause for holds, cause in _RULES if holds(facts))
    return Fate(cause, "" if cause is Cause.STOPPED else f"Modal says exit code {facts.code}")
