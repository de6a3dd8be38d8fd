"""Tracks queues: the usage of each, its waiting objects, and the objects to look at in a tick.

Usage is counted again from the live runs whenever they changed, so that it cannot drift; waiting
objects are read back from statuses. The status of a Queue is written here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from fleetctl.controllers.model import Resource, RunState
from fleetctl.controllers.planning.plan import Plan, Start
from fleetctl.controllers.queues.preemption import PreemptableRun, choose_evictions, next_up
from fleetctl.controllers.queues.queue_admission import QueueAdmission
from fleetctl.controllers.queues.queue_position import parse_rules, parse_waiter
from fleetctl.controllers.queues.queue_state import (
    QueueAsk,
    QueuedObject,
    QueueRules,
    QueueState,
    QueueStates,
    Quota,
    parse_usage,
)
from fleetctl.controllers.schedule.desired import is_revived
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.placement import rank_of
from fleetctl.specs.kinds.registry import parse_spec

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track


QUEUE = "Queue"
EVICTED_AGAIN_S = 1.0
SAME_MOMENT_S = 1e-6  # apart; the resolution of a present-day float is a quarter of this
WOKEN_MAX = 64  # of a cohort in one tick; each costs a pass

# A sort of live runs: namespace, usage, provider, USD a second, being stopped.
Sort = tuple[str, str, str, float | None, bool]


class Queues(EnginePart):
    kind = QUEUE
    makes_passes = True
    applies_at_once = True
    rests = True
    field = "queue"

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._lines = QueueStates()
        self._read: dict[str, int] = {}  # uid of a Queue -> the generation that is taken in
        self._uids: dict[str, str] = {}  # its name -> its uid
        self._holders: set[str] = set()  # uids of objects that may hold something of a queue
        self._counted: dict[str, Counter[Sort]] = {}  # as of the last count, by queue
        self._dirty: set[str] = set()  # names of queues about which something changed
        self._evicted: dict[str, dict[str, str]] = {}  # uid -> run -> why, in this tick
        self._came_s = 0.0  # when the newest object arrived in its queue

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state)

    # -- ticks ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Loads usage and waiting objects once the tracks are loaded."""
        self._lines = QueueStates()
        self._read = {}
        self._counted = {}
        self._evicted = {}
        self._holders = {uid for uid, it in self._state.tracks.items() if it.work is not None}
        for track in self._state.tracks.values():
            if (waiter := _read_waiter(track)) is not None:
                self._lines.put(waiter)

    def take(self, uid: str) -> None:
        self._state.queue.add(uid)

    def begin_tick(self, now_s: float) -> list[str]:
        """Returns the uids of objects whose runs should be preempted, of objects
        that may now find capacity, and of Queues with a changed status.
        """
        self._declare()
        self._recount()
        self._evicted.clear()
        woken: dict[str, None] = {}
        for cohort in self._lines.cohorts():
            if not any(it.rules.name in self._dirty for it in cohort):
                continue
            for one in choose_evictions(self._lines, cohort, partial(self._running, cohort)):
                self._evicted.setdefault(one.uid, {})[one.run] = one.message
                woken[one.uid] = None
            woken |= dict.fromkeys(self._next_up(cohort, now_s))
        self._dirty.clear()
        if self._evicted:
            # A decision that its pass did not write, such as for an ending object, is made again.
            for name, uid in self._uids.items():
                self._dirty.add(name)
                self._state.queue.add(uid, now_s + EVICTED_AGAIN_S)
        return [*woken, *self._list_outdated()]

    def order(self, uids: list[str], rows: Mapping[str, Resource]) -> list[str]:
        """Returns the same uids, those in queues last and in the order of their queues: the first
        in line decides first, also where its request is not known yet. rows: that were written
        since.
        """
        queued: list[tuple[float, float, tuple[int, float, int], str]] = []
        for uid in uids:
            track = self._state.tracks.get(uid)
            resource = rows.get(uid) or (track.resource if track is not None else None)
            if resource is None or '"queue":' not in resource.spec:
                continue
            spec = json.loads(resource.spec)
            if "queue" not in spec:
                continue  # it reports this about another object

            came_s = _read_queued(track).get("since", resource.created_at_s)
            rank = (-rank_of(spec.get("priority", 0)), came_s, len(queued))
            share, served_s = self._share_of(spec["queue"], resource.namespace)
            queued.append((share, served_s, rank, uid))

        last = [it[-1] for it in sorted(queued)]
        among = set(last)
        return [*(it for it in uids if it not in among), *last]

    def _share_of(self, queue: str, namespace: str) -> tuple[float, float]:
        """Returns the namespace's share of the queue, and the seconds that it was served, if
        namespaces take turns.
        """
        line = self._lines.lines.get(queue)
        if line is None:
            return 0.0, 0.0
        served_s = 0.0
        if line.rules.weights is not None:
            served_s = line.served.get(namespace, 0.0)
        return line.share(namespace), served_s

    # -- passes --------------------------------------------------------------------------------

    def list_inputs(self, work: ResourceWork, now_s: float) -> Mapping[str, Any]:
        evicted = self._evicted.get(work.resource.uid, {})  # which runs are preempted, and why
        return {"turn": self.turn(work, now_s), "evicted": evicted}

    def take_decision(self, decision: WorkDecision) -> None:
        self.note_decision(decision.work.track, decision.desired.turn, decision.plan)

    def turn(self, work: ResourceWork, now_s: float) -> QueueAdmission | None:
        """Returns the admission for the next pass of this object; None: it is in no queue."""
        # Objects from one file come at one moment, and in their order in that file.
        came_s = max(now_s, self._came_s + SAME_MOMENT_S)
        me = _build_waiter(work, came_s)
        if me is None:
            return None
        if me.since_s == came_s:
            self._came_s = came_s
        return QueueAdmission(self._lines, me, now_s)

    def note_decision(
        self,
        track: Track,
        turn: QueueAdmission | None,
        plan: Plan,
    ) -> None:
        """Records the outcome of its pass: it waits in its queue, or it does not."""
        uid = track.resource.uid
        known = self._lines.waiters.get(uid)
        if turn is not None and plan.queued is not None:
            self._lines.put(plan.queued)
        else:
            self._lines.drop(uid)
        now = self._lines.waiters.get(uid)
        if any(isinstance(action, Start) for action in plan.actions):
            self._holders.add(uid)
            if turn is not None:
                self._touch(turn.me.queue)
        if known != now:
            for waiter in (known, now):
                if waiter is not None:
                    self._touch(waiter.queue)

    def pass_failed(self, uid: str) -> None:
        """The object no longer waits."""
        if (waiter := self._lines.waiters.get(uid)) is not None:
            self._lines.drop(uid)
            self._touch(waiter.queue)

    def remove(self, track: Track) -> None:
        """Wakes the objects that wait in a removed Queue, to report it."""
        self._touch(track.resource.name)

    def run_pass(self, track: Track, _now_s: float) -> Status:
        return {
            "phase": "Suspended" if getattr(track.spec, "suspend", False) else "Ready",
            "reason": "Suspended" if getattr(track.spec, "suspend", False) else "Ready",
            "message": "",
            "waitingOn": [],
            "observedGeneration": track.resource.generation,
            **self._figures(track.resource.name),
        }

    # -- helpers -------------------------------------------------------------------------------

    def _touch(self, name: str) -> None:
        """Marks a queue as changed: the next tick, which is made for that, looks at it."""
        self._dirty.add(name)
        if (uid := self._uids.get(name)) is not None:
            self._state.queue.add(uid)

    def _declare(self) -> None:
        """Takes in the Queue objects as they are stored."""
        queues = self._state.tracks.of_kind(QUEUE)
        tracks = [it for it in queues if it.resource.deleted_at_s is None]
        read = {it.resource.uid: it.resource.generation for it in tracks}
        if read == self._read:
            return
        before = {it.rules.name: it.rules for it in self._lines.lines.values()}
        self._read = read
        self._uids = {it.resource.name: it.resource.uid for it in tracks}
        rules = [found for it in tracks if (found := _read_rules(it)) is not None]
        self._lines.declare(rules)
        self._counted = {}
        after = {it.name: it for it in rules}
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        self._dirty |= after.keys()
        for waiter in self._lines.waiters.values():
            if waiter.queue in changed:
                self._state.queue.add(waiter.uid)  # its admission message has changed

    def _recount(self) -> None:
        """Counts the usage again, where a run changed, or a pass added usage: that may have been
        undone, or belong to a run that ended in the same pass.
        """
        counted: dict[str, Counter[Sort]] = {}
        for uid in list(self._holders):
            held = False
            track = self._state.tracks.get(uid)
            if track is None:
                self._holders.discard(uid)
                continue
            for place, count in track.places.items():
                if place.queued:
                    held = True
                    name, _ = parse_usage(place.queued)
                    sort = (
                        track.resource.namespace, place.queued, place.provider, place.usd_per_s,
                        place.stopping,
                    )  # fmt: skip
                    counted.setdefault(name, Counter())[sort] += count
            if not held:
                self._holders.discard(uid)
        taken, self._lines.taken = self._lines.taken, set()
        for name in {*counted, *self._counted, *taken}:
            now = counted.get(name)
            before = self._counted.get(name)
            line = self._lines.lines.get(name)
            if line is None or (now == before and name not in taken):
                continue
            self._dirty.add(name)
            self._lines.empty(name)
            for (namespace, text, provider, usd_per_s, stopping), count in (now or {}).items():
                ask = QueueAsk(provider, parse_usage(text)[1], usd_per_s)
                self._lines.use(
                    name,
                    namespace,
                    ask,
                    count=count,
                    leaving=stopping,
                )
        self._counted = counted

    def _next_up(self, cohort: list[QueueState], now_s: float) -> list[str]:
        """Picks the next objects; a removed object is no longer waiting."""
        while True:
            found = next_up(self._lines, cohort, now_s, most=WOKEN_MAX)
            gone = [uid for uid in found if uid not in self._state.tracks]
            if not gone:
                return found
            for uid in gone:
                self._lines.drop(uid)

    def _running(self, cohort: list[QueueState]) -> Iterator[PreemptableRun]:
        names = {it.rules.name for it in cohort}
        for uid in self._holders:
            track = self._state.tracks.get(uid)
            if track is None or track.work is None:
                continue
            spec = track.spec
            priority = spec.rank if isinstance(spec, WorkSpec) else 0
            for run in track.work.history.live.values():
                if run.state is RunState.STOPPING or not run.queued:
                    continue
                name, takes = parse_usage(run.queued)
                if name in names:
                    ask = QueueAsk(run.provider, takes, run.usd_per_s)
                    namespace = track.resource.namespace
                    yield PreemptableRun(
                        run.name,
                        uid,
                        name,
                        namespace,
                        priority,
                        run.created_at_s,
                        ask,
                    )

    def _list_outdated(self) -> Iterator[str]:
        """Yields Queue objects whose status differs from the present state."""
        for name, uid in self._uids.items():
            track = self._state.tracks.get(uid)
            if track is None:
                continue
            figures = self._figures(name)
            if any(track.status.get(key) != value for key, value in figures.items()):
                yield uid

    def _figures(self, name: str) -> Status:
        line = self._lines.lines.get(name)
        if line is None:
            return {}
        counted = self._counted.get(name, Counter())
        return {
            "quotas": [
                _quota_status(quota, used)
                for quota, used in zip(line.rules.quotas, line.used, strict=True)
            ],
            "running": sum(counted.values()),
            "shares": {
                name: [round(it, 6) for it in used]
                for name, used in sorted(line.by_namespace.items())
                if any(used)
            },
            "waiting": line.waiting,
        }


def _quota_status(quota: Quota, used: float) -> dict[str, object]:
    return {
        "resource": quota.resource,
        **({"provider": quota.provider} if quota.provider else {}),
        "used": round(used, 6),
        "nominal": quota.nominal,
        "borrowed": round(max(0.0, used - quota.nominal), 6),
    }


def _read_rules(track: Track) -> QueueRules | None:
    """Returns None where its own pass fails by it, and reports so in its status."""
    resource = track.resource
    try:
        parse_spec(QUEUE, resource.spec)
    except ValueError:
        return None
    return parse_rules(resource.name, json.loads(resource.spec))


def _build_waiter(work: ResourceWork, now_s: float) -> QueuedObject | None:
    """Returns the object as it would wait now, without its request. Its arrival is that of its
    present spec.
    """
    track, spec = work.track, work.track.spec
    if not isinstance(spec, WorkSpec) or spec.queue is None:
        return None
    resource = track.resource
    known = _read_queued(track)
    same = known.get("queue") == spec.queue and not is_revived(track.prior, resource.generation)
    since_s = now_s
    stands_since_s = now_s
    if same:
        since_s = known["since"]
        stands_since_s = known.get("waitingSince", now_s)
    return QueuedObject(
        uid=resource.uid,
        key=resource.key,
        queue=spec.queue,
        namespace=resource.namespace,
        priority=spec.rank,
        since_s=since_s,
        stands_since_s=stands_since_s,
    )


def _read_waiter(track: Track) -> QueuedObject | None:
    """Returns the waiting object as the status was written; its pass sends its request again."""
    if track.work is None:
        return None
    resource = track.resource
    return parse_waiter(resource.uid, resource.key, resource.namespace, track.status)


def _read_queued(track: Track | None) -> Mapping[str, Any]:
    """Returns the wait that the status of an object records; empty without any."""
    found = track.status.get("queued") if track is not None else None
    return found if isinstance(found, dict) else {}
