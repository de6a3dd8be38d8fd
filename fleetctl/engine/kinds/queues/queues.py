"""Queues: what of each is used, who waits in it, and whom a tick looks at because of that.

Called by the loop in every tick and by its passes. What is used is counted anew from what is there
whenever that changed, so that it cannot drift; who waits is read back from statuses. What a person
sees of a Queue is told here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.model import Resource, RunState
from fleetctl.controllers.planning.plan import Plan, Start
from fleetctl.controllers.queues.decide import Running, evictions, next_up
from fleetctl.controllers.queues.lines import Ask, Line, Lines, Rules, Waiter
from fleetctl.controllers.queues.standing import rules_in, waiter_in
from fleetctl.controllers.queues.takes import Quota, read
from fleetctl.controllers.queues.turn import Turn
from fleetctl.controllers.schedule.desired import revived
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.blocks.priority import rank_of
from fleetctl.specs.kinds.registry import parse_spec

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track, Work

QUEUE = "Queue"
EVICTED_AGAIN_S = 1.0
SAME_MOMENT_S = 1e-6  # apart; a float of today holds a quarter of that
WOKEN_MAX = 64  # of a cohort in one tick; each costs a pass

# What is there of one sort: namespace, what it takes, provider, USD a second, being stopped.
Sort = tuple[str, str, str, float | None, bool]


class Queues:
    def __init__(self, state: State) -> None:
        self._state = state
        self._lines = Lines()
        self._read: dict[str, int] = {}  # uid of a Queue -> the generation that is taken in
        self._uids: dict[str, str] = {}  # its name -> its uid
        self._holders: set[str] = set()  # uids of objects that may hold something of a queue
        self._counted: dict[str, Counter[Sort]] = {}  # as of the last count, by queue
        self._dirty: set[str] = set()  # names of queues about which something changed
        self._evicted: dict[str, dict[str, str]] = {}  # uid -> run -> why, in this tick
        self._came_s = 0.0  # when the newest came to its queue

    # -- ticks ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Once the tracks are there: who holds something, and who waited."""
        self._lines = Lines()
        self._read, self._counted, self._evicted = {}, {}, {}
        self._holders = {uid for uid, it in self._state.tracks.items() if it.work is not None}
        for track in self._state.tracks.values():
            if (waiter := _told(track)) is not None:
                self._lines.put(waiter)

    def count(self, now_s: float) -> list[str]:
        """Begin a tick; the uids of those whose runs are to make room, of those that may find some
        now, and of Queues that have news.
        """
        self._declare()
        self._recount()
        self._evicted.clear()
        woken: dict[str, None] = {}
        for cohort in self._lines.cohorts():
            if not any(it.rules.name in self._dirty for it in cohort):
                continue
            for one in evictions(self._lines, cohort, partial(self._running, cohort)):
                self._evicted.setdefault(one.uid, {})[one.run] = one.message
                woken[one.uid] = None
            woken |= dict.fromkeys(self._next_up(cohort, now_s))
        self._dirty.clear()
        if self._evicted:
            # What a pass did not write, such as that of one that is ending, is decided again.
            for name, uid in self._uids.items():
                self._dirty.add(name)
                self._state.queue.add(uid, now_s + EVICTED_AGAIN_S)
        return [*woken, *self._untold()]

    def in_turn(self, uids: list[str], rows: Mapping[str, Resource]) -> list[str]:
        """The same, those in queues last and in the order of their queues: whoever comes first is
        asked first what it wants, also where that is not known yet. rows: that were written since.
        """
        queued: list[tuple[float, float, tuple[int, float, int], str]] = []
        for uid in uids:
            track = self._state.tracks.get(uid)
            resource = rows.get(uid) or (track.resource if track is not None else None)
            if resource is None or '"queue":' not in resource.spec:
                continue
            spec = json.loads(resource.spec)
            if "queue" not in spec:
                continue  # it says so of something else
            space, line = resource.namespace, self._lines.lines.get(spec["queue"])
            turns = line is not None and line.rules.weights is not None
            share = line.share(space) if line is not None else 0.0
            served_s = line.served.get(space, 0.0) if line is not None and turns else 0.0
            known: Mapping[str, Any] = (track.status.get("queued") if track else None) or {}  # type: ignore[assignment]
            came_s = known.get("since", resource.created_at_s)
            rank = (-rank_of(spec.get("priority", 0)), came_s, len(queued))
            queued.append((share, served_s, rank, uid))
        last = [it[-1] for it in sorted(queued)]
        among = set(last)
        return [*(it for it in uids if it not in among), *last]

    # -- passes --------------------------------------------------------------------------------

    def turn(self, work: Work, now_s: float) -> Turn | None:
        """What the next pass of this object asks; None: it is in no queue."""
        # Objects of one file come at one moment, and in the order in which they stand there.
        came_s = max(now_s, self._came_s + SAME_MOMENT_S)
        me = _waiter(work, came_s)
        if me is None:
            return None
        if me.since_s == came_s:
            self._came_s = came_s
        return Turn(self._lines, me, now_s)

    def evicted(self, uid: str) -> Mapping[str, str]:
        """Which of its runs are to make room, and why."""
        return self._evicted.get(uid, {})

    def decided(self, track: Track, turn: Turn | None, plan: Plan) -> None:
        """What its pass came to: it waits in its queue, or it does not."""
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

    def failed(self, uid: str) -> None:
        """Its pass raised: nobody waits for it."""
        if (waiter := self._lines.waiters.get(uid)) is not None:
            self._lines.drop(uid)
            self._touch(waiter.queue)

    def removed(self, name: str) -> None:
        """A Queue is gone: who waits in it says so."""
        self._touch(name)

    def status(self, track: Track) -> Status:
        """Of a Queue object."""
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
        """Something about it changed: the next tick, which is made for that, looks at it."""
        self._dirty.add(name)
        if (uid := self._uids.get(name)) is not None:
            self._state.queue.add(uid)

    def _declare(self) -> None:
        """Take in the Queue objects as they are stored."""
        tracks = [
            it
            for it in self._state.tracks.assets.values()
            if it.resource.kind == QUEUE and it.resource.deleted_at_s is None
        ]
        read = {it.resource.uid: it.resource.generation for it in tracks}
        if read == self._read:
            return
        before = {it.rules.name: it.rules for it in self._lines.lines.values()}
        self._read = read
        self._uids = {it.resource.name: it.resource.uid for it in tracks}
        rules = [found for it in tracks if (found := _rules(it)) is not None]
        self._lines.declare(rules)
        self._counted = {}
        after = {it.name: it for it in rules}
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        self._dirty |= after.keys()
        for waiter in self._lines.waiters.values():
            if waiter.queue in changed:
                self._state.queue.add(waiter.uid)  # what it is told is another thing now

    def _recount(self) -> None:
        """What is there, where anything about it changed, or a pass took of it: that may have been
        undone, or stand for something that ended in the same pass.
        """
        counted: dict[str, Counter[Sort]] = {}
        for uid in list(self._holders):
            held, track = False, self._state.tracks.get(uid)
            if track is None:
                self._holders.discard(uid)
                continue
            for place, count in track.places.items():
                if place.queued:
                    held = True
                    name, _ = read(place.queued)
                    sort = (
                        track.resource.namespace, place.queued, place.provider, place.usd_per_s,
                        place.stopping,
                    )  # fmt: skip
                    counted.setdefault(name, Counter())[sort] += count
            if not held:
                self._holders.discard(uid)
        taken, self._lines.taken = self._lines.taken, set()
        for name in {*counted, *self._counted, *taken}:
            now, before = counted.get(name), self._counted.get(name)
            line = self._lines.lines.get(name)
            if line is None or (now == before and name not in taken):
                continue
            self._dirty.add(name)
            self._lines.empty(name)
            for (namespace, text, provider, usd_per_s, stopping), count in (now or {}).items():
                ask = Ask(provider, read(text)[1], usd_per_s)
                self._lines.use(name, namespace, ask, count=count, leaving=stopping)
        self._counted = counted

    def _next_up(self, cohort: list[Line], now_s: float) -> list[str]:
        """Who is gone waits no more, and is asked no more."""
        while True:
            found = next_up(self._lines, cohort, now_s, most=WOKEN_MAX)
            gone = [uid for uid in found if uid not in self._state.tracks]
            if not gone:
                return found
            for uid in gone:
                self._lines.drop(uid)

    def _running(self, cohort: list[Line]) -> Iterator[Running]:
        names = {it.rules.name for it in cohort}
        for uid in self._holders:
            track = self._state.tracks.get(uid)
            if track is None or track.work is None:
                continue
            spec = track.spec
            priority = spec.rank if isinstance(spec, Execution) else 0
            for run in track.work.history.live.values():
                if run.state is RunState.STOPPING or not run.queued:
                    continue
                name, takes = read(run.queued)
                if name in names:
                    ask = Ask(run.provider, takes, run.usd_per_s)
                    namespace = track.resource.namespace
                    yield Running(run.name, uid, name, namespace, priority, run.created_at_s, ask)

    def _untold(self) -> Iterator[str]:
        """Queue objects whose status tells of something else than what is there."""
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
                _quota(quota, used)
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


def _quota(quota: Quota, used: float) -> dict[str, object]:
    return {
        "resource": quota.resource,
        **({"provider": quota.provider} if quota.provider else {}),
        "used": round(used, 6),
        "nominal": quota.nominal,
        "borrowed": round(max(0.0, used - quota.nominal), 6),
    }


def _rules(track: Track) -> Rules | None:
    """None: its own pass fails by it, and says so in its status."""
    resource = track.resource
    try:
        parse_spec(QUEUE, resource.spec)
    except ValueError:
        return None
    return rules_in(resource.name, json.loads(resource.spec))


def _waiter(work: Work, now_s: float) -> Waiter | None:
    """As it would wait now, without what it asks for. It came when its present wish did."""
    track, spec = work.track, work.track.spec
    if not isinstance(spec, Execution) or spec.queue is None:
        return None
    resource = track.resource
    known: Mapping[str, Any] = track.status.get("queued") or {}  # type: ignore[assignment]
    same = known.get("queue") == spec.queue and not revived(track.prior, resource.generation)
    since_s, stands_since_s = now_s, now_s
    if same:
        since_s, stands_since_s = known["since"], known.get("waitingSince", now_s)
    return Waiter(
        uid=resource.uid,
        key=resource.key,
        queue=spec.queue,
        namespace=resource.namespace,
        priority=spec.rank,
        since_s=since_s,
        stands_since_s=stands_since_s,
    )


def _told(track: Track) -> Waiter | None:
    """Who waited when the status was written; its pass says anew what it asks for."""
    if track.work is None:
        return None
    resource = track.resource
    return waiter_in(resource.uid, resource.key, resource.namespace, track.status)
