"""One pass over a Schedule: what controllers/kinds/cron decides is carried out and written at once.

The object and the status that tells of it are one transaction, and the object's name says the
moment that it is for: whatever crashes, nothing is made twice. Called by decide/passes.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, StoreError
from fleetctl.common.tasks import cancel
from fleetctl.controllers.kinds.cron.decide import Child, Decision, Memory, decide, started
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.kinds.schedules.maker import Maker, Wanted
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.stores.base import EventRow
from fleetctl.tracking.annotations import SCHEDULED_AT, SCHEDULED_BY

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track

KIND = "Schedule"
# A clock that is moved, and a machine that slept, are noticed within this.
BEAT_S = 60.0
RUNS_NOT_BEGUN = "RunsNotBegun"
NAMES_SHOWN_MAX = 5


class Schedules:
    """maker: None = this engine makes no objects, and says so."""

    def __init__(self, state: State, maker: Maker | None) -> None:
        self._state, self._maker = state, maker
        # Schedule -> what it made, by uid, and perhaps more: the store knows which of it is there.
        self._children: dict[str, set[str]] | None = None
        self._looking: dict[tuple[str, float], asyncio.Future[object]] = {}
        self._failures: dict[str, int] = {}  # in a row

    # -- what others tell ----------------------------------------------------------------------

    def heard(self, resource: Resource) -> None:
        """An object is new, has another phase, or is gone: whose schedule made it looks at it."""
        owner = resource.annotations.get(SCHEDULED_BY)
        if owner is None:
            return
        if self._children is not None:
            self._children.setdefault(owner, set()).add(resource.uid)
        self._state.queue.add(owner)

    async def looked(self) -> None:
        """Until all that is asked of repositories is answered."""
        if self._looking:
            await asyncio.wait(self._looking.values())

    async def close(self) -> None:
        looking = list(self._looking.values())
        self._looking.clear()
        for task in looking:
            task.cancel()
        await cancel(looking)

    # -- passes --------------------------------------------------------------------------------

    def remove(self, track: Track) -> Status | None:
        """Of one that is deleted: its objects go with it. None once all of them are gone."""
        resource = track.resource
        left = self._children_of(resource)
        self._delete([it for it in left if not it.deleted], "its schedule was deleted")
        if not left:
            self._failures.pop(resource.uid, None)
            for key in [it for it in self._looking if it[0] == resource.uid]:
                self._looking.pop(key).cancel()
            (self._children or {}).pop(resource.uid, None)
            return None
        text = f"still stopping {_names([it.key for it in left])}"
        return {
            **_kept(track.status),
            "phase": Phase.DELETING.value,
            "reason": "Deleted",
            "message": text,
            "waitingOn": [text],
            "observedGeneration": resource.generation,
        }

    def run(self, track: Track, now_s: float) -> Status:
        """Start what is due, let go of what is past, and the status from then on."""
        assert isinstance(track.spec, ScheduleSpec)
        spec, children = track.spec, self._children_of(track.resource)
        decision = decide(spec, _memory(track, spec, now_s), children, now_s)
        self._delete(decision.remove, "the schedule keeps no more", spec.concurrency_policy)
        memory, problem, made = decision.memory, "", None
        if decision.start_s is not None:
            problem, made = self._start(track, spec, decision.start_s, now_s)
            memory = memory if made is None else started(decision)
        self._tell_missed(track, spec, decision, passed=made is not None)
        self._tell_unbegun(track, decision)
        status = _status(track, spec, decision, memory, children, problem)
        if made is not None:
            running = {*_list(status["activeRuns"]), made.key}
            status |= {"active": len(running), "activeRuns": sorted(running)}
        self._wake(track, decision, now_s, again=made is not None)
        return status

    def _start(
        self, track: Track, spec: ScheduleSpec, at_s: float, now_s: float
    ) -> tuple[str, Resource | None]:
        """(why it cannot be made now, or nothing; the object once it is stored)"""
        uid, wanted = track.resource.uid, Wanted(track.resource, spec, at_s)
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
        self.heard(made)
        self._state.queue.add(made.uid)
        late_s = now_s - at_s
        late = f", {late_s:,.0f} s late" if late_s >= BEAT_S else ""
        text = f"{made.key} is made for {spec.times.text(at_s)}{late}"
        self._state.say(uid, "ScheduledRun", text)
        return "", made

    def _look(self, maker: Maker, wanted: Wanted, at_s: float) -> asyncio.Future[object]:
        uid = wanted.schedule.uid
        task = self._looking.get((uid, at_s))
        if task is None:
            task = asyncio.ensure_future(maker.look(wanted))
            task.add_done_callback(lambda _: self._state.poke(uid))
            for known in [key for key in self._looking if key[0] == uid]:
                self._looking.pop(known).cancel()  # a later moment is due by now
            self._looking[uid, at_s] = task
        return task

    def _failed(self, track: Track, error: FleetctlError, now_s: float) -> str:
        uid = track.resource.uid
        self._failures[uid] = self._failures.get(uid, 0) + 1
        self._state.queue.add(uid, now_s + self._state.backoff_s(self._failures[uid]))
        self._state.say(uid, "RunNotMade", str(error), kind="Warning")
        return str(error)

    def _delete(self, doomed: Sequence[Child], why: str, policy: str = "") -> None:
        """The ordinary deletion: the row stays until all of it is confirmed gone. What equal work
        came to is still known.
        """
        store, now_s = self._state.store, self._state.clock.now_s()
        for child in doomed:
            row = store.resources.of(child.uid)
            if row is None or row.deleted_at_s is not None:
                continue
            store.resources.put(replace(row, deleted_at_s=now_s), expected_version=row.version)
            reason = why if child.over or not policy else f"concurrencyPolicy is {policy}"
            self._state.events.append(EventRow(child.uid, now_s, "Normal", "Deleted", reason))
            self._state.queue.add(child.uid)

    def _tell_missed(
        self, track: Track, spec: ScheduleSpec, decision: Decision, *, passed: bool
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

    def _tell_unbegun(self, track: Track, decision: Decision) -> None:
        """An event when it begins to be so, not one for each further object."""
        if decision.unbegun and track.status.get("reason") != RUNS_NOT_BEGUN:
            text = _unbegun(decision.unbegun)
            self._state.say(track.resource.uid, RUNS_NOT_BEGUN, text, kind="Warning")

    def _wake(self, track: Track, decision: Decision, now_s: float, *, again: bool) -> None:
        due_s = now_s + BEAT_S
        if decision.next_s is not None and not decision.behind:
            due_s = min(due_s, max(decision.next_s, now_s))
        self._state.queue.add(track.resource.uid, 0.0 if again else due_s)

    def _children_of(self, schedule: Resource) -> list[Child]:
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
        return [_child(row) for row in found.values() if row is not None and _is_of(row, schedule)]


def _is_of(row: Resource, schedule: Resource) -> bool:
    """Not of one that was let go."""
    return row.annotations.get(SCHEDULED_BY) == schedule.uid


def _child(row: Resource) -> Child:
    status = json.loads(row.status) if row.status else {}
    current = status.get("observedGeneration") == row.generation
    at = row.annotations.get(SCHEDULED_AT, "")
    messages = [str(status.get(key) or "") for key in ("reason", "message")]
    return Child(
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
    """A run that only tries to start counts as active, and has a start time, too. None: nobody has
    looked at the object yet.
    """
    if "phase" not in status:
        return None
    if status.get("phase") != Phase.PENDING:
        return True
    return any(status.get(key) for key in ("succeeded", "failed", "retries", "infraFailures"))


def _memory(track: Track, spec: ScheduleSpec, now_s: float) -> Memory:
    """What the status keeps. Another line counts from when it was seen first: what it names of the
    time before was never wished for.
    """
    status = track.status
    decided_s, last_s = status.get("decidedUntil"), status.get("lastScheduleTime")
    succeeded_s, missed = status.get("lastSuccessfulTime"), status.get("missed")
    if not isinstance(decided_s, int | float):
        decided_s = track.resource.created_at_s
    elif status.get("times") != _times(spec):
        decided_s = max(decided_s, now_s)
    return Memory(
        float(decided_s),
        last_s if isinstance(last_s, int | float) else None,
        succeeded_s if isinstance(succeeded_s, int | float) else None,
        missed if isinstance(missed, int) else 0,
    )


def _times(spec: ScheduleSpec) -> str:
    return f"{spec.schedule} {spec.time_zone}"


def _status(
    track: Track,
    spec: ScheduleSpec,
    decision: Decision,
    memory: Memory,
    children: Sequence[Child],
    problem: str,
) -> Status:
    phase, reason, message = Phase.READY, "Ready", ""
    if spec.suspend:
        phase, reason, message = Phase.SUSPENDED, "Suspended", "suspend is set: nothing is started"
    elif decision.behind:
        until = spec.times.text(memory.decided_s)
        message = f"the clock was set back: nothing starts again for moments up to {until}"
        phase, reason = Phase.PENDING, "ClockBehind"
    elif problem:
        phase, reason, message = Phase.PENDING, "RunNotMade", problem
    elif decision.unbegun:
        message = "; ".join(filter(None, (_unbegun(decision.unbegun), decision.waiting)))
        phase, reason = Phase.PENDING, RUNS_NOT_BEGUN
    elif decision.waiting:
        phase, reason, message = Phase.PENDING, "Waiting", decision.waiting
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
        "times": _times(spec),
        "missed": memory.missed,
    }


def _unbegun(children: Sequence[Child]) -> str:
    """Returns a sentence on objects that have not begun, oldest first."""
    names = _names([it.key for it in children])
    text = f"its newest {len(children)} objects have not begun: {names}"
    return f"{text}; {children[0].why}" if children[0].why else text


def _kept(status: dict[str, object]) -> Status:
    found: Status = {**status}  # type: ignore[typeddict-item]
    return found


def _names(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:NAMES_SHOWN_MAX])
    rest = len(keys) - NAMES_SHOWN_MAX
    return shown if rest <= 0 else f"{shown} and {rest} more"


def _list(value: object) -> list[str]:
    return list(value) if isinstance(value, list) else []
