"""What a Schedule does next: which moment is due, what stands in its way, what goes. Pure.

    decide(spec, memory, children, now_s) -> Decision   called by engine/kinds/schedules

A moment is due when it is later than everything that was decided before and not later than now.
Time that is set back makes nothing due twice: what is decided is a moment, and never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.specs.kinds.schedule import ScheduleSpec

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"
# A clock that says so much less than it did is not what is left of a leap second.
SET_BACK_S = 60.0
# So many in a row that never began are no accident; a person hears of them.
UNBEGUN_NOTED_MIN = 3
# Nothing more is made beyond it: Kubernetes gives up a CronJob that missed as many starts.
UNBEGUN_MAX = 100


@dataclass(frozen=True, slots=True)
class Child:
    """An object that the schedule made. at_s: the moment it was made for; None: by hand."""

    uid: str
    key: str
    at_s: float | None
    over: bool  # at its present generation
    succeeded: bool
    deleted: bool  # its deletion was asked for, and is not confirmed
    created_at_s: float
    completed_at_s: float | None = None
    begun: bool | None = True  # a run of it began, at some time; None: it is not known yet
    why: str = ""  # why it stands still, for people

    @property
    def runs(self) -> bool:
        """Whether it stands in the way of the next; what is made by hand never does."""
        return self.at_s is not None and (self.deleted or not self.over)


@dataclass(frozen=True, slots=True)
class Memory:
    """What the status keeps. decided_s: everything up to here is started, or is missed for good."""

    decided_s: float
    last_s: float | None = None
    succeeded_s: float | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """memory: what holds from now on while nothing is started. start_s: the moment to start for,
    now; then `passed` earlier ones are missed as well. remove: finished ones beyond the limits, and
    with `Replace` those in the way. late: moments that were too late to start. waiting: why what is
    due does not start; empty where nothing waits. unbegun: its newest objects, oldest first, where
    several in a row have not begun.
    """

    memory: Memory
    next_s: float | None
    start_s: float | None = None
    passed: int = 0
    remove: tuple[Child, ...] = ()
    late: int = 0
    waiting: str = ""
    behind: bool = False  # the clock was set back
    unbegun: tuple[Child, ...] = ()


def decide(spec: ScheduleSpec, memory: Memory, children: Sequence[Child], now_s: float) -> Decision:
    times = spec.times
    done = [it.completed_at_s for it in children if it.succeeded and it.completed_at_s is not None]
    memory = replace(memory, succeeded_s=max([*done, memory.succeeded_s or 0.0]) or None)
    past = history_to_remove(spec, children)
    decision = Decision(
        memory,
        next_s=times.next_s(max(now_s, memory.decided_s)),
        remove=past,
        behind=memory.decided_s > now_s + SET_BACK_S,
        unbegun=newest_unbegun(children),
    )
    if spec.suspend:
        return decision
    decision = _given_up(spec, decision, now_s)
    due = times.between(decision.memory.decided_s, now_s)
    if due is None:
        return decision
    in_the_way = [it for it in children if it.runs]
    if in_the_way and spec.concurrency_policy != ALLOW:
        names = ", ".join(it.key for it in in_the_way)
        waiting = f"the run of {times.text(due.last_s)} waits for the end of {names}"
        doomed: tuple[Child, ...] = ()
        if spec.concurrency_policy == REPLACE:
            doomed = tuple(it for it in in_the_way if not it.deleted)
        return replace(decision, remove=(*past, *doomed), waiting=waiting)
    if len(decision.unbegun) >= UNBEGUN_MAX:
        waiting = f"the run of {times.text(due.last_s)} waits until one of these begins or goes"
        return replace(decision, waiting=waiting)
    return replace(decision, start_s=due.last_s, passed=due.count - 1)


def started(decision: Decision) -> Memory:
    """What is to be remembered once the object for `start_s` is stored."""
    assert decision.start_s is not None
    return replace(
        decision.memory,
        decided_s=decision.start_s,
        last_s=decision.start_s,
        missed=decision.memory.missed + decision.passed,
    )


def _given_up(spec: ScheduleSpec, decision: Decision, now_s: float) -> Decision:
    """Moments that are too late to be started are missed for good."""
    deadline_s, memory = spec.starting_deadline_seconds, decision.memory
    if deadline_s is None:
        return decision
    late = spec.times.between(memory.decided_s, now_s - deadline_s)
    if late is None:
        return decision
    memory = replace(memory, decided_s=late.last_s, missed=memory.missed + late.count)
    return replace(decision, memory=memory, late=late.count)


def history_to_remove(spec: ScheduleSpec, children: Sequence[Child]) -> tuple[Child, ...]:
    """Finished ones beyond the limits, oldest first; those made by hand count with them."""
    found: list[Child] = []
    for succeeded, most in (
        (True, spec.successful_jobs_history_limit),
        (False, spec.failed_jobs_history_limit),
    ):
        ended = [it for it in children if it.over and it.succeeded is succeeded]
        ended.sort(key=lambda it: (it.created_at_s, it.uid))
        found += [it for it in ended[: max(0, len(ended) - most)] if not it.deleted]
    return tuple(found)


def newest_unbegun(children: Sequence[Child]) -> tuple[Child, ...]:
    """Returns the objects behind the last one that began, oldest first; none where they are few.
    Those made by hand count neither way.
    """
    made = sorted((it for it in children if it.at_s is not None), key=lambda it: it.at_s or 0.0)
    found: list[Child] = []
    for child in reversed(made):
        if child.begun or child.over:
            break
        if child.begun is not None:
            found.append(child)
    return tuple(reversed(found)) if len(found) >= UNBEGUN_NOTED_MIN else ()


def name_of(schedule: str, at_s: float) -> str:
    """Of the object for one moment, the same whoever asks: two starts of it cannot both be."""
    return f"{schedule}-{int(at_s // 60)}"
