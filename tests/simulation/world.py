"""The ground truth: which sandboxes exist, what works in them, which volumes and scratch
directories lie about.

It outlives every crash of the controller. What was asked for lands by itself, whether or not the
asker still lives. The manifest is the script of the work: `seconds`, `fails` and `metrics` come
from a task's parameters or from the environment of its template.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.base import SANDBOX_CLOSED, RunRef, RunRequest
from tests.simulation import gpus, nodes
from tests.simulation.loop import Timeline
from tests.simulation.models import Model
from tests.simulation.shelf import NOTHING, STEP, Saving, Shelf, saving_of

STRANGER = "some-other-store"
FAILS_ALWAYS = 99

# A sandbox in which nothing begins dies by its own lease; an idle reusable one does so later.
INERT_LEASE_S = 180.0
TWIN_LEASE_S = 30.0
SANDBOX_IDLE_S = (40.0, 400.0, 100_000.0)

ODD_LIVES = 0.25  # read journals in pieces, and as many have first commands that begin nothing

# At most this many infrastructure failures hit one index, below the default of maxInfraRetries,
# so that a seed with faults must end as the one without.
INFRA_FAULTS_PER_INDEX_MAX = 3


@dataclass(frozen=True, slots=True)
class End:
    """The end record of a run."""

    ok: bool
    infrastructure: bool
    reason: str
    exit_code: int | None


@dataclass(slots=True)
class Work:
    """What one run does in a sandbox."""

    order: RunRequest
    box: Box
    asked_at_s: float
    begun_at_s: float
    seconds: float
    metrics: int
    ended_at_s: float | None = None
    end: End | None = None  # None after the end: lost without a record
    saving: Saving = NOTHING


@dataclass(slots=True)
class Box:
    """One sandbox."""

    handle: str
    sandbox: str
    owner: str
    uid: str
    model: Model
    asked_at_s: float
    created_at_s: float
    reusable: bool = False
    usd_per_s: float = 0.0  # what it is billed
    twin: bool = False
    begun: set[str] = field(default_factory=set)  # the latch: runs that have begun in it
    ended_at_s: float | None = None
    work: Work | None = None
    tasks_done: int = 0

    @property
    def alive(self) -> bool:
        return self.ended_at_s is None


@dataclass(slots=True)
class Landing:
    """A start that was asked for and has not arrived. `told` gets the handle, or the error that
    means no.
    """

    order: RunRequest
    asked_at_s: float
    told: list[Callable[[str | Unavailable], None]] = field(default_factory=list)


class World:
    def __init__(self, timeline: Timeline, rng: random.Random, *, faults_end_s: float) -> None:
        self.timeline = timeline
        self.rng = rng
        self.faults_end_s = faults_end_s
        self.idle_s = rng.choice(SANDBOX_IDLE_S)
        self.boxes: list[Box] = []
        self.by_sandbox: dict[str, Box] = {}
        self.works: dict[str, Work] = {}
        self.shelves: dict[tuple[str, int], Shelf] = defaultdict(Shelf)  # by uid and index
        self.begun_again: list[str] = []  # runs whose work began a second time, anywhere
        self.landing: dict[str, Landing] = {}
        self.volumes: dict[str, set[str]] = defaultdict(set)  # provider -> names
        self.scratch: dict[str, set[str]] = defaultdict(set)  # provider -> uids
        self.removed: list[tuple[str, str]] = []  # (provider, volume), since the last check
        self.down: dict[str, tuple[float, float]] = {}
        self.quotas: list[tuple[str, float, float, int]] = []  # provider, from, to, slots
        self.mutations = 0  # calls that change something, as asked by the controller
        self.digest = 0
        self.on_effect: Callable[[str], None] = lambda _name: None
        self.on_push: Callable[[Box, str], None] = lambda _box, _run: None
        self.on_stop: Callable[[RunRef], None] = lambda _ref: None
        # A generator of its own, so that its use changes no other decision of a seed.
        self._oddness = random.Random(f"odd {rng.getstate()[1][1]}")
        self._reads_pieces = self._oddness.random() < ODD_LIVES
        self._begins_silently = self._oddness.random() < ODD_LIVES
        self._failed: dict[tuple[str, int, str], int] = defaultdict(int)
        self._infra_faults: dict[tuple[str, int], int] = defaultdict(int)

    @property
    def now_s(self) -> float:
        return self.timeline.epoch_s + self.timeline.now_s

    def faulty(self) -> bool:
        return self.timeline.now_s < self.faults_end_s

    def chance(self, odds: float) -> bool:
        """True with this chance while faults last."""
        return odds > 0.0 and self.faulty() and self.rng.random() < odds

    def piece_of(self, fresh: int) -> int | None:
        """Returns the number of new events of a journal that a look reads; None: all."""
        if fresh < 2 or not self._reads_pieces or not self.faulty():
            return None
        return self._oddness.randrange(1, fresh) if self._oddness.random() < 0.7 else None

    def _is_silent(self, order: RunRequest) -> bool:
        """Returns whether the first command is killed before it begins or reports an event."""
        index = (order.uid, order.index)
        odd = self._begins_silently and self.faulty() and self._oddness.random() < 0.3
        if not odd or self._infra_faults[index] >= INFRA_FAULTS_PER_INDEX_MAX:
            return False
        self._infra_faults[index] += 1
        return True

    def is_down(self, provider: str) -> bool:
        from_s, to_s = self.down.get(provider, (0.0, 0.0))
        return from_s <= self.timeline.now_s < to_s

    def alive(self) -> list[Box]:
        return [box for box in self.boxes if box.alive]

    def may_begin(self, run: str) -> bool:
        """A request that is still to land could begin the work of this run."""
        return any(
            landing.order.run == run and self._may_begin(landing.order, key)
            for key, landing in self.landing.items()
        )

    def _may_begin(self, order: RunRequest, key: str) -> bool:
        if key == order.run:
            return True
        # In two phases, only in the sandbox of its handle, while that waits.
        box = next((it for it in self.boxes if it.handle == order.handle), None)
        return box is not None and box.alive and order.run not in box.begun

    def lived_s(self, box: Box, *, since_s: float = 0.0) -> float:
        """How long the sandbox has existed after since_s, until now or its end."""
        until_s = self.now_s if box.ended_at_s is None else box.ended_at_s
        return max(0.0, until_s - max(box.created_at_s, since_s))

    def effect(self, name: str) -> None:
        """Something real has changed: remember it for replay, then check all invariants."""
        self.digest = zlib.crc32(f"{self.timeline.now_s:.6f} {name}".encode(), self.digest)
        self.on_effect(name)

    def plant(self, model: Model, *, sandbox: str, owner: str) -> Box:
        """Put a sandbox there that no record speaks of."""
        box = Box(self._handle(), sandbox, owner, "nobody", model, self.now_s, self.now_s)
        return self._add(box)

    # ---- starts

    def ask_start(
        self,
        model: Model,
        order: RunRequest,
        asked_at_s: float,
        told: Callable[[str | Unavailable], None],
    ) -> None:
        """The request is on its way; it lands within the bound even if the asker dies.

        asked_at_s: when the engine made the call, which the network may have held.
        """
        phases = model.contract.two_phase
        key = f"{order.run} {bool(order.handle)}" if phases else order.run
        if not phases and order.run in self.works:
            told(self.works[order.run].box.handle)
        elif key in self.landing:
            self.landing[key].told.append(told)
        else:
            self.landing[key] = Landing(order, asked_at_s, [told])
            least_s, most_s = model.landing_s
            if most_s == 0.0:
                self._land(model, key)
            else:
                self.timeline.after(
                    self.rng.uniform(least_s, most_s), lambda: self._land(model, key)
                )

    def _land(self, model: Model, key: str) -> None:
        landing = self.landing.pop(key)
        begin = self._begin_in_phases if model.contract.two_phase else self._begin
        answer = begin(model, landing.order, landing.asked_at_s)
        for told in landing.told:
            told(answer)

    def _begin_in_phases(
        self, model: Model, order: RunRequest, asked_at_s: float
    ) -> str | Unavailable:
        """Make the sandbox, or begin in the one that the order's handle names.

        A name is taken only while its sandbox lives: what has ended is not found by it.
        """
        if order.sandbox != order.run:
            box = next((it for it in self.boxes if it.handle == order.handle), None)
            if box is not None and order.run in box.begun:
                return box.handle
            return self._begin(model, order, asked_at_s)
        if not order.handle:
            return self._make(model, order, asked_at_s)
        box = next(it for it in self.boxes if it.handle == order.handle)
        if box.alive and order.run not in box.begun and not self._is_silent(order):
            self._run_in(box, order, asked_at_s)
        return box.handle

    def can_begin(self, order: RunRequest) -> bool:
        """Returns whether a start on its way can still come to something: the second phase of one
        whose own sandbox has ended cannot.
        """
        own = order.sandbox == order.run and order.handle
        return not own or any(it.handle == order.handle and it.alive for it in self.boxes)

    def _make(self, model: Model, order: RunRequest, asked_at_s: float) -> str | Unavailable:
        """A sandbox that waits, until it begins or its lease ends."""
        found = self.by_sandbox.get(order.sandbox)
        if found is not None and found.alive:
            return found.handle
        box = self._new_box(model, order, asked_at_s)
        if isinstance(box, Unavailable):
            return box
        self.effect(f"make {order.run}")
        self.timeline.after(INERT_LEASE_S, lambda: None if box.begun else self._end_box(box))
        return box.handle

    def _new_box(self, model: Model, order: RunRequest, asked_at_s: float) -> Box | Unavailable:
        if model.capacity is not None and self._used(model) >= model.capacity:
            return Unavailable("no room for another sandbox", reason="NoCapacity")
        if self._used(model) >= self._quota(model.name):
            return Unavailable("the quota is used up", reason="Quota")
        return self._add(
            Box(
                self._handle(),
                order.sandbox,
                order.owner,
                order.uid,
                model,
                asked_at_s,
                self.now_s,
                order.reusable,
                (model.usd_per_s or 0.0)
                * gpus.FACTORS.get(gpus.given(order), 1.0)
                * nodes.given(order),
            )
        )

    def _begin(self, model: Model, order: RunRequest, asked_at_s: float) -> str | Unavailable:
        if order.sandbox == order.run:
            made = self._new_box(model, order, asked_at_s)
            if isinstance(made, Unavailable):
                return made
            box = made
        else:
            found = self.by_sandbox.get(order.sandbox)
            if found is None or not found.alive:
                return Unavailable(f"`{order.sandbox}` is closed", reason=SANDBOX_CLOSED)
            if found.work is not None:
                return Unavailable(f"`{order.sandbox}` runs another task", reason="SandboxBusy")
            box = found
        self._run_in(box, order, asked_at_s)
        return box.handle

    def _quota(self, provider: str) -> float:
        now_s = self.timeline.now_s
        slots = (
            slots
            for name, from_s, to_s, slots in self.quotas
            if name == provider and self.faulty() and from_s <= now_s < to_s
        )
        return min(slots, default=float("inf"))

    def _used(self, model: Model) -> int:
        return sum(1 for box in self.boxes if box.alive and box.model is model and not box.twin)

    def _handle(self) -> str:
        return f"h{len(self.boxes)}"

    def _add(self, box: Box) -> Box:
        self.boxes.append(box)
        self.by_sandbox[box.sandbox] = box
        self.scratch[box.model.name].add(box.uid)
        if self.chance(box.model.odds.twin):
            self._add_twin(box)
        return box

    def _add_twin(self, box: Box) -> None:
        twin = replace(box, handle=f"{box.handle}-twin", reusable=False, twin=True, begun=set())
        self.boxes.append(twin)
        self.timeline.after(TWIN_LEASE_S, lambda: self._end_box(twin))

    def _run_in(self, box: Box, order: RunRequest, asked_at_s: float) -> None:
        seconds, metrics = _number(order, "seconds", 1.0), _number(order, "metrics", 0)
        work = Work(order, box, asked_at_s, self.now_s, seconds, int(metrics))
        work.saving = saving_of(self.shelves[order.uid, order.index], order)
        box.work = work
        box.begun.add(order.run)
        if order.run in self.works:
            self.begun_again.append(order.run)
        self.works[order.run] = work
        self._schedule_end(work)
        self.effect(f"begin {order.run}")
        self.on_push(box, order.run)

    # ---- ends

    def _schedule_end(self, work: Work) -> None:
        limit_s = work.order.template.timeout_seconds or float("inf")
        lasts_s = min(work.seconds, limit_s)
        odds = work.box.model.odds
        index = (work.order.uid, work.order.index)
        hit = self.chance(odds.vanish), self.chance(odds.preempt)
        doomed = self._infra_faults[index] < _number(work.order, "lost", 0)
        if doomed or (any(hit) and self._infra_faults[index] < INFRA_FAULTS_PER_INDEX_MAX):
            self._infra_faults[index] += 1
            when_s = self.rng.random() * min(lasts_s, 60.0)
            end = None if hit[0] else End(False, True, "Preempted", None)
            self.timeline.after(when_s, lambda: self._end_work(work, end, keep_box=False))
        elif lasts_s < float("inf"):
            timed_out = limit_s < work.seconds
            self.timeline.after(lasts_s, lambda: self._finish(work, timed_out=timed_out))

    def _finish(self, work: Work, *, timed_out: bool) -> None:
        if work.ended_at_s is not None:
            return
        key = (work.order.uid, work.order.index, _script(work.order))
        if timed_out:
            end = End(False, False, "Timeout", 137)
        elif self._failed[key] < _number(work.order, "fails", 0):
            end = End(False, False, "ExitCode:1", 1)
        else:
            end = End(True, False, "Completed", 0)
        self._failed[key] += not end.ok
        self._end_work(work, end, keep_box=work.box.reusable and not timed_out)

    def _end_work(self, work: Work, end: End | None, *, keep_box: bool) -> None:
        if work.ended_at_s is not None:
            return
        work.ended_at_s, work.end = self.now_s, end
        work.box.work = None
        self._put_on_shelf(work)
        if keep_box:
            self._end_when_idle(work.box)
        else:
            work.box.ended_at_s = self.now_s
        self.effect(f"end {work.order.run}")
        self.on_push(work.box, work.order.run)

    def _put_on_shelf(self, work: Work) -> None:
        """What it had completed by its end, and one that a sudden end cut short."""
        if not work.saving.count:
            return
        shelf = self.shelves[work.order.uid, work.order.index]
        steps = [one.step for one in work.saving.saved(work.begun_at_s, work.seconds, self.now_s)]
        for step in steps:
            shelf.save(step, whole=True)
        if work.end is None or not work.end.ok:
            shelf.save(max(steps, default=work.saving.resumed or 0) + STEP, whole=False)

    def _end_when_idle(self, box: Box) -> None:
        box.tasks_done += 1
        done = box.tasks_done

        def look() -> None:
            # A task that came in between makes this look a stale one.
            if box.work is None and box.tasks_done == done:
                self._end_box(box)

        self.timeline.after(self.idle_s, look)

    def _end_box(self, box: Box) -> None:
        if not box.alive:
            return
        if box.work is not None:
            # The provider's stop is neither the task's fault nor the infrastructure's.
            end = End(False, False, "Stopped", 143) if box.model.stopped_leaves_record else None
            self._end_work(box.work, end, keep_box=False)
            return
        box.ended_at_s = self.now_s
        self.effect(f"close {box.handle}")

    def ask_stop(self, model: Model, sandbox: str) -> None:
        """Lands by itself after a while. The caller has checked that the spec is a lawful one."""
        box = self.by_sandbox.get(sandbox)
        if box is not None and box.alive:
            self.timeline.after(self.rng.uniform(*model.stop_takes_s), lambda: self._end_box(box))


def _number(order: RunRequest, name: str, default: float) -> float:
    value = order.params.get(name, order.template.env.get(name, default))
    return float(str(value))


def _script(order: RunRequest) -> str:
    return f"{order.template_hash} {sorted(order.params.items())}"
