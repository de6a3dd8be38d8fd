"""Decides a Schedule's next step: the moment that is due, the objects that block it, the object to
make. Pure.

    decide_schedule(spec, memory, children, now_s) -> ScheduleDecision

The caller is engine/kinds/schedules. A moment is due when it is later than everything that was
decided before and not later than now. A clock that is set back makes no moment due twice: the
decided moment never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.specs.kinds.schedule import ScheduleSpec

ALLOW = "Allow"
FORBID = "Forbid"
REPLACE = "Replace"
# A clock that goes back by this much is not explained by a leap second.
SET_BACK_S = 60.0
# This many unbegun objects in a row are no accident; the user is warned.
UNBEGUN_NOTED_MIN = 3
# The limit of unbegun objects: Kubernetes gives up a CronJob that missed as many starts.
UNBEGUN_MAX = 100


@dataclass(frozen=True, slots=True)
class ScheduledObject:
    """An object that the schedule made. at_s: the moment it was made for; None: by hand."""

    uid: str
    key: str
    at_s: float | None
    over: bool  # at its present generation
    succeeded: bool
    deleted: bool  # its deletion was requested, and is not confirmed
    created_at_s: float
    completed_at_s: float | None = None
    begun: bool | None = True  # one of its runs began, at some time; None: it is not known yet
    why: str = ""  # why it does not progress, for users

    @property
    def runs(self) -> bool:
        """Returns true if it blocks the next start; an object made by hand never does."""
        return self.at_s is not None and (self.deleted or not self.over)


@dataclass(frozen=True, slots=True)
class ScheduleMemory:
    """The state kept in the status. decided_s: everything up to here is started, or is missed for
    good.
    """

    decided_s: float
    last_s: float | None = None
    succeeded_s: float | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleDecision:
    """memory: the state if no object is started. start_s: the moment to start for, now; then
    `passed` earlier moments are missed as well. remove: finished objects beyond the limits, and
    with `Replace` the objects that block the start. late: moments that were too late to start.
    waiting: why a due moment does not start; empty if no moment waits. unbegun: the newest objects,
    oldest first, if several in a row have not begun.
    """

    memory: ScheduleMemory
    next_s: float | None
    start_s: float | None = None
    passed: int = 0
    remove: tuple[ScheduledObject, ...] = ()
    late: int = 0
    waiting: str = ""
    behind: bool = False  # the clock was set back
    unbegun: tuple[ScheduledObject, ...] = ()


def decide_schedule(
    spec: ScheduleSpec,
    memory: ScheduleMemory,
    children: Sequence[ScheduledObject],
    now_s: float,
) -> ScheduleDecision:
    times = spec.times
    done = [it.completed_at_s for it in children if it.succeeded and it.completed_at_s is not None]
    memory = replace(memory, succeeded_s=max([*done, memory.succeeded_s or 0.0]) or None)
    past = history_to_remove(spec, children)
    decision = ScheduleDecision(
        memory,
        next_s=times.next_s(max(now_s, memory.decided_s)),
        remove=past,
        behind=memory.decided_s > now_s + SET_BACK_S,
        unbegun=newest_unbegun(children),
    )
    if spec.suspend:
        return decision
    decision = _give_up_late(spec, decision, now_s)
    due = times.between(decision.memory.decided_s, now_s)
    if due is None:
        return decision
    in_the_way = [it for it in children if it.runs]
    if in_the_way and spec.concurrency_policy != ALLOW:
        names = ", ".join(it.key for it in in_the_way)
        waiting = f"the run of {times.text(due.last_s)} waits for the end of {names}"
        doomed: tuple[ScheduledObject, ...] = ()
        if spec.concurrency_policy == REPLACE:
            doomed = tuple(it for it in in_the_way if not it.deleted)
        return replace(decision, remove=(*past, *doomed), waiting=waiting)
    if len(decision.unbegun) >= UNBEGUN_MAX:
        waiting = f"the run of {times.text(due.last_s)} waits until one of these begins or ends"
        return replace(decision, waiting=waiting)
    return replace(decision, start_s=due.last_s, passed=due.count - 1)


def record_start(decision: ScheduleDecision) -> ScheduleMemory:
    """Returns the state to keep once the object for `start_s` is stored."""
    assert decision.start_s is not None
    return replace(
        decision.memory,
        decided_s=decision.start_s,
        last_s=decision.start_s,
        missed=decision.memory.missed + decision.passed,
    )


def _give_up_late(
    spec: ScheduleSpec,
    decision: ScheduleDecision,
    now_s: float,
) -> ScheduleDecision:
    """Marks moments that are too late to be started as missed for good."""
    deadline_s = spec.starting_deadline_seconds
    memory = decision.memory
    if deadline_s is None:
        return decision
    late = spec.times.between(memory.decided_s, now_s - deadline_s)
    if late is None:
        return decision
    memory = replace(memory, decided_s=late.last_s, missed=memory.missed + late.count)
    return replace(decision, memory=memory, late=late.count)


def history_to_remove(
    spec: ScheduleSpec, children: Sequence[ScheduledObject]
) -> tuple[ScheduledObject, ...]:
    """Returns finished children beyond the limits, oldest first; those made by hand count with
    them.
    """
    found: list[ScheduledObject] = []
    for succeeded, most in (
        (True, spec.successful_jobs_history_limit),
        (False, spec.failed_jobs_history_limit),
    ):
        ended = [it for it in children if it.over and it.succeeded is succeeded]
        ended.sort(key=lambda it: (it.created_at_s, it.uid))
        found += [it for it in ended[: max(0, len(ended) - most)] if not it.deleted]
    return tuple(found)


def newest_unbegun(children: Sequence[ScheduledObject]) -> tuple[ScheduledObject, ...]:
    """Returns the objects behind the last one that began, oldest first; an empty tuple where they
    are few. Those made by hand count neither way.
    """
    made = sorted((it for it in children if it.at_s is not None), key=lambda it: it.at_s or 0.0)
    found: list[ScheduledObject] = []
    for child in reversed(made):
        if child.begun or child.over:
            break
        if child.begun is not None:
            found.append(child)
    if len(found) >= UNBEGUN_NOTED_MIN:
        return tuple(reversed(found))
    return ()


def name_of(schedule: str, at_s: float) -> str:
    """Returns the name of the object for one moment, the same for every caller: two starts for it
    cannot both be stored.
    """
    return f"{schedule}-{int(at_s // 60)}"
