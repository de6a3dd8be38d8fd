"""Explains why a sandbox of Modal is over. Pure; called by modal_sandboxes.py with the SDK's facts.

A run's outcome never comes from here: only its journal's end record has it. This sorts the
sandboxes that left no end record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

KILLED = 137  # 128 + SIGKILL: left by a container's memory limit, and by any other kill


@dataclass(frozen=True, slots=True)
class ModalFacts:
    """timed_out and terminated: what `wait()` raised; without either, code is the entrypoint's.

    ours: we asked for its end. preemptible: it had a GPU, and only those are preempted.
    """

    code: int
    timed_out: bool = False
    terminated: bool = False
    ours: bool = False
    preemptible: bool = False


# The first that holds. Ends that we requested come first: a terminate looks like a kill.
_RULES: tuple[tuple[Callable[[ModalFacts], bool], Cause], ...] = (
    (lambda facts: facts.ours, Cause.STOPPED),
    (lambda facts: facts.timed_out, Cause.TIMEOUT),
    (lambda facts: facts.terminated, Cause.TERMINATED),
    # Modal reports no code of a program for a machine that it takes away. A kill might be that,
    # too; a run without enough memory must have that reason, or it is tried again in vain on each
    # machine.
    (lambda facts: facts.code == KILLED, Cause.OUT_OF_MEMORY),
    (lambda facts: facts.preemptible, Cause.PREEMPTED),
    # Also code 0: Modal has put it on sandboxes that its own failures ended.
    (lambda _: True, Cause.LOST),
)


def resolve_fate(facts: ModalFacts) -> Fate:
    cause = next(cause for holds, cause in _RULES if holds(facts))
    if cause is Cause.OUT_OF_MEMORY:
        # Another machine of the same size would end it, too: each attempt costs, without any help.
        return Fate(cause, f"Modal says exit code {facts.code}", own=True, exit_code=facts.code)
    return Fate(cause, "" if cause is Cause.STOPPED else f"Modal says exit code {facts.code}")
