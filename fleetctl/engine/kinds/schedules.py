"""Runs one pass over a Schedule: the decisions of controllers/kinds are carried out, and a maker
stores the objects that it requests as an apply of their manifests would.

The object and the status that records it are one transaction, and the object's name contains the
moment that it is for: no crash makes it twice. The maker is implemented in fleetctl/apply, which
knows how a manifest becomes an object; the daemon passes it in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from fleetctl.common.errors import FleetctlError, StoreError
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.kinds.schedule_decision import (
    ScheduleDecision,
    ScheduledObject,
    ScheduleMemory,
    decide_schedule,
    name_of,
    record_start,
)
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.shared.part import EnginePart, PartWiring
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.stores.base import EventRow
from fleetctl.tracking.annotations import SCHEDULED_AT, SCHEDULED_BY

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


KIND = "Schedule"
# A clock that is moved, and a machine that slept, are noticed within this.
BEAT_S = 60.0
RUNS_NOT_BEGUN = "RunsNotBegun"
NAMES_SHOWN_MAX = 5


class Schedules(EnginePart):
    """maker: None = this engine makes no objects, and reports so."""

    kind = KIND
    makes_passes = True
    rests = True

    def __init__(self, state: EngineState, maker: ObjectMaker | None) -> None:
        self._state = state
        self._maker = maker
        # Schedule -> uids of the objects that it made, perhaps of removed ones too: the store knows
        # which exist.
        self._children: dict[str, set[str]] | None = None
        self._looking: dict[tuple[str, float], asyncio.Future[object]] = {}
        self._failures: dict[str, int] = {}  # in a row

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, wiring.services.maker)

    # -- events of other objects -------------------------------------------------------------------

    def object_moved(self, track: Track) -> None:
        self.note_object(track.resource)

    def dropped(self, track: Track) -> None:
        if owner := track.resource.annotations.get(SCHEDULED_BY):
            self._state.queue.add(owner)  # it waits for this end, perhaps

    def note_object(self, resource: Resource) -> None:
        """Takes an object that is new, has another phase, or is gone: its schedule looks at it."""
        owner = resource.annotations.get(SCHEDULED_BY)
        if owner is None:
            return
        if self._children is not None:
            self._children.setdefault(owner, set()).add(resource.uid)
        self._state.queue.add(owner)

    async def looked(self) -> None:
        """Waits until every request to a repository has a reply."""
        if self._looking:
            await asyncio.wait(self._looking.values())

    async def close(self) -> None:
        looking = list(self._looking.values())
        self._looking.clear()
        for task in looking:
            task.cancel()
        await cancel_tasks(looking)

    # -- passes --------------------------------------------------------------------------------

    def remove(self, track: Track) -> Status | None:
        """Removes a deleted Schedule: its objects are deleted with it. None once all are gone."""
        resource = track.resource
        left = self._children_of(resource)
        self._delete([it for it in left if not it.deleted], "its schedule was deleted")
        if not left:
            self._failures.pop(resource.uid, None)
            for key in [it for it in self._looking if it[0] == resource.uid]:
                self._looking.pop(key).cancel()
            (self._children or {}).pop(resource.uid, None)
            return None
        text = f"still stopping {_join_names([it.key for it in left])}"
        return {
            **_copy_status(track.status),
            "phase": Phase.DELETING.value,
            "reason": "Deleted",
            "message": text,
            "waitingOn": [text],
            "observedGeneration": resource.generation,
        }

    def run_pass(self, track: Track, now_s: float) -> Status:
        """Starts due moments, removes past objects, and returns the status from then on."""
        assert isinstance(track.spec, ScheduleSpec)
        spec = track.spec
        children = self._children_of(track.resource)
        decision = decide_schedule(spec, _read_memory(track, spec, now_s), children, now_s)
        self._delete(decision.remove, "the schedule keeps no more", spec.concurrency_policy)
        memory = decision.memory
        problem = ""
        made = None
        if decision.start_s is not None:
            problem, made = self._start(track, spec, decision.start_s, now_s)
            memory = memory if made is None else record_start(decision)
        self._tell_missed(track, spec, decision, passed=made is not None)
        self._tell_unbegun(track, decision)
        status = _build_status(
            track,
            spec,
            decision,
            memory,
            children,
            problem,
        )
        if made is not None:
            running = {*_as_list(status["activeRuns"]), made.key}
            status |= {"active": len(running), "activeRuns": sorted(running)}
        self._wake(track, decision, now_s, again=made is not None)
        return status

    def _start(
        self,
        track: Track,
        spec: ScheduleSpec,
        at_s: float,
        now_s: float,
    ) -> tuple[str, Resource | None]:
        """Returns (why it cannot be made now, or empty; the object once it is stored)"""
        uid = track.resource.uid
        wanted = RequestedObject(track.resource, spec, at_s)
        if self._maker is None:
            return "this controller makes no objects", None
        try:
            looked: object | None = None
            if self._maker.asks(wanted):
                task = self._look(self._maker, wanted, at_s)
                if not task.done():
                    return f"reading the source for the run of {spec.times.text(at_s)}", None
                del self._looking[uid, at_s]
                looked = task.result()
            made = self._maker.make(wanted, looked, now_s)
        except StoreError:
            raise
        except FleetctlError as error:
            return self._failed(track, error, now_s), None
        self._failures.pop(uid, None)
        self.note_object(made)
        self._state.queue.add(made.uid)
        late_s = now_s - at_s
        late = f", {late_s:,.0f} s late" if late_s >= BEAT_S else ""
        text = f"{made.key} is made for {spec.times.text(at_s)}{late}"
        self._state.say(uid, "ScheduledRun", text)
        return "", made

    def _look(
        self,
        maker: ObjectMaker,
        wanted: RequestedObject,
        at_s: float,
    ) -> asyncio.Future[object]:
        uid = wanted.schedule.uid
        task = self._looking.get((uid, at_s))
        if task is None:
            task = asyncio.ensure_future(maker.look(wanted))
            task.add_done_callback(lambda _: self._state.poke(uid))
            for known in [key for key in self._looking if key[0] == uid]:
                self._looking.pop(known).cancel()  # a later moment is due by now
            self._looking[uid, at_s] = task
        return task

    def _failed(
        self,
        track: Track,
        error: FleetctlError,
        now_s: float,
    ) -> str:
        uid = track.resource.uid
        self._failures[uid] = self._failures.get(uid, 0) + 1
        self._state.queue.add(uid, now_s + self._state.backoff_s(self._failures[uid]))
        self._state.say(uid, "RunNotMade", str(error), kind="Warning")
        return str(error)

    def _delete(
        self,
        doomed: Sequence[ScheduledObject],
        why: str,
        policy: str = "",
    ) -> None:
        """Deletes objects in the ordinary way: the row stays until all is confirmed gone. Results
        for equal work stay known.
        """
        store = self._state.store
        now_s = self._state.clock.now_s()
        for child in doomed:
            row = store.resources.of(child.uid)
            if row is None or row.deleted_at_s is not None:
                continue
            store.resources.put(replace(row, deleted_at_s=now_s), expected_version=row.version)
            reason = why if child.over or not policy else f"concurrencyPolicy is {policy}"
            self._state.events.append(
                EventRow(
                    child.uid,
                    now_s,
                    "Normal",
                    "Deleted",
                    reason,
                )
            )
            self._state.queue.add(child.uid)

    def _tell_missed(
        self,
        track: Track,
        spec: ScheduleSpec,
        decision: ScheduleDecision,
        *,
        passed: bool,
    ) -> None:
        count = decision.late + (decision.passed if passed else 0)
        if not count:
            return
        many = f"more than {count - 1:,}" if count > 1000 else f"{count:,}"
        runs = "run was" if count == 1 else "runs were"
        until = spec.times.text(decision.start_s or decision.memory.decided_s)
        why = "later than startingDeadlineSeconds" if decision.late else "no controller was there"
        if decision.passed and spec.concurrency_policy == "Forbid":
            why = "another one was running"
        text = f"{many} {runs} missed up to {until}: {why}"
        self._state.say(track.resource.uid, "RunsMissed", text, kind="Warning")

    def _tell_unbegun(self, track: Track, decision: ScheduleDecision) -> None:
        """Adds an event for the first unbegun objects, not one for each further object."""
        if decision.unbegun and track.status.get("reason") != RUNS_NOT_BEGUN:
            text = _describe_unbegun(decision.unbegun)
            self._state.say(track.resource.uid, RUNS_NOT_BEGUN, text, kind="Warning")

    def _wake(
        self,
        track: Track,
        decision: ScheduleDecision,
        now_s: float,
        *,
        again: bool,
    ) -> None:
        due_s = now_s + BEAT_S
        if decision.next_s is not None and not decision.behind:
            due_s = min(due_s, max(decision.next_s, now_s))
        self._state.queue.add(track.resource.uid, 0.0 if again else due_s)

    def _children_of(self, schedule: Resource) -> list[ScheduledObject]:
        resources = self._state.store.resources
        if self._children is None:
            self._children = {}
            for row in resources.list():
                owner = row.annotations.get(SCHEDULED_BY)
                if owner is not None:
                    self._children.setdefault(owner, set()).add(row.uid)
        uids = self._children.get(schedule.uid, set())
        found = {uid: resources.of(uid) for uid in sorted(uids)}
        uids -= {uid for uid, row in found.items() if row is None}
        return [
            _read_child(row) for row in found.values() if row is not None and _is_of(row, schedule)
        ]


def _is_of(row: Resource, schedule: Resource) -> bool:
    """Returns true for an object that the schedule owns, not for one that was released."""
    return row.annotations.get(SCHEDULED_BY) == schedule.uid


def _read_child(row: Resource) -> ScheduledObject:
    status = json.loads(row.status) if row.status else {}
    current = status.get("observedGeneration") == row.generation
    at = row.annotations.get(SCHEDULED_AT, "")
    messages = [str(status.get(key) or "") for key in ("reason", "message")]
    return ScheduledObject(
        uid=row.uid,
        key=row.key,
        at_s=float(at) if at else None,
        over=bool(current and status.get("phase") in TERMINAL_PHASES),
        succeeded=bool(current and status.get("phase") == Phase.SUCCEEDED),
        deleted=row.deleted_at_s is not None,
        created_at_s=row.created_at_s,
        completed_at_s=status.get("completionTime"),
        begun=_has_begun(status),
        why=": ".join(filter(None, messages)),
    )


def _has_begun(status: Mapping[str, object]) -> bool | None:
    """Returns true if a run has begun. A run that only tries to start counts as active, and has a
    start time, too. None: the object had no pass yet.
    """
    if "phase" not in status:
        return None
    if status.get("phase") != Phase.PENDING:
        return True
    return any(status.get(key) for key in ("succeeded", "failed", "retries", "infraFailures"))


def _read_memory(
    track: Track,
    spec: ScheduleSpec,
    now_s: float,
) -> ScheduleMemory:
    """Reads the memory from the status. Another cron line counts from when it was seen first:
    earlier moments that it names were never desired.
    """
    status = track.status
    decided_s = status.get("decidedUntil")
    last_s = status.get("lastScheduleTime")
    succeeded_s = status.get("lastSuccessfulTime")
    missed = status.get("missed")
    if not isinstance(decided_s, int | float):
        decided_s = track.resource.created_at_s
    elif status.get("times") != _format_times(spec):
        decided_s = max(decided_s, now_s)
    return ScheduleMemory(
        float(decided_s),
        last_s if isinstance(last_s, int | float) else None,
        succeeded_s if isinstance(succeeded_s, int | float) else None,
        missed if isinstance(missed, int) else 0,
    )


def _format_times(spec: ScheduleSpec) -> str:
    return f"{spec.schedule} {spec.time_zone}"


def _build_status(
    track: Track,
    spec: ScheduleSpec,
    decision: ScheduleDecision,
    memory: ScheduleMemory,
    children: Sequence[ScheduledObject],
    problem: str,
) -> Status:
    phase = Phase.READY
    reason = "Ready"
    message = ""
    if spec.suspend:
        phase = Phase.SUSPENDED
        reason = "Suspended"
        message = "suspend is set: nothing is started"
    elif decision.behind:
        until = spec.times.text(memory.decided_s)
        message = f"the clock was set back: nothing starts again for moments up to {until}"
        phase = Phase.PENDING
        reason = "ClockBehind"
    elif problem:
        phase = Phase.PENDING
        reason = "RunNotMade"
        message = problem
    elif decision.unbegun:
        message = "; ".join(filter(None, (_describe_unbegun(decision.unbegun), decision.waiting)))
        phase = Phase.PENDING
        reason = RUNS_NOT_BEGUN
    elif decision.waiting:
        phase = Phase.PENDING
        reason = "Waiting"
        message = decision.waiting
    running = sorted(it.key for it in children if it.runs)
    return {
        "phase": phase.value,
        "reason": reason,
        "message": message,
        "waitingOn": [message] if message and not spec.suspend else [],
        "observedGeneration": track.resource.generation,
        "active": len(running),
        "activeRuns": running,
        "lastScheduleTime": memory.last_s,
        "lastSuccessfulTime": memory.succeeded_s,
        "nextScheduleTime": None if spec.suspend else decision.next_s,
        "decidedUntil": memory.decided_s,
        "times": _format_times(spec),
        "missed": memory.missed,
    }


def _describe_unbegun(children: Sequence[ScheduledObject]) -> str:
    """Returns a sentence on objects that have not begun, oldest first."""
    names = _join_names([it.key for it in children])
    text = f"its newest {len(children)} objects have not begun: {names}"
    if children[0].why:
        return f"{text}; {children[0].why}"
    return text


def _copy_status(status: dict[str, object]) -> Status:
    found: Status = {**status}  # type: ignore[typeddict-item]
    return found


def _join_names(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:NAMES_SHOWN_MAX])
    rest = len(keys) - NAMES_SHOWN_MAX
    if rest <= 0:
        return shown
    return f"{shown} and {rest} more"


def _as_list(value: object) -> list[str]:
    if isinstance(value, list):
        return list(value)
    return []


@dataclass(frozen=True, slots=True)
class RequestedObject:
    """One object of a schedule. at_s: the moment it is for; None: requested by hand, as `name`."""

    schedule: Resource
    spec: ScheduleSpec
    at_s: float | None
    named: str = ""

    @property
    def name(self) -> str:
        return self.named or name_of(self.schedule.name, self.at_s or 0.0)


class ObjectMaker(Protocol):
    """Objects are stored inside a transaction of the caller's."""

    def asks(self, wanted: RequestedObject) -> bool:
        """Returns true if a remote service must be asked before it can be made, such as a
        repository.
        """
        ...

    async def look(self, wanted: RequestedObject) -> object:
        """Asks the remote service, outside of any transaction. Raises FleetctlError."""
        ...

    def make(
        self,
        wanted: RequestedObject,
        looked: object | None,
        now_s: float,
    ) -> Resource:
        """Stores the object, and returns its row; an existing one for this very moment is returned
        as it is. Raises FleetctlError where another object has its name, or it is refused.
        """
        ...
