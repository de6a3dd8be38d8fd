"""The loop: turn after turn, and between two of them sleep until there is something to look at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from fleetctl.common.clock import Clock
from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Run
from fleetctl.engine.boundary import reported
from fleetctl.engine.capacity.admission import Admission
from fleetctl.engine.capacity.prices import Market
from fleetctl.engine.capacity.providers import Accounts
from fleetctl.engine.decide.load import Reading
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.decide.records import Records
from fleetctl.engine.execute.executor import Effects
from fleetctl.engine.execute.leftovers import Leftovers
from fleetctl.engine.execute.orphan_sweep import sweep_forever
from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.forgetting import forget_forever
from fleetctl.engine.messages import Fact, can_wait
from fleetctl.engine.money.budgets import Budgets
from fleetctl.engine.money.ledger import Charges
from fleetctl.engine.observe.absorb import Absorber
from fleetctl.engine.observe.reach import watch_reach
from fleetctl.engine.observe.troubles import Troubles
from fleetctl.engine.observe.watcher import Watcher
from fleetctl.engine.queue import Queue
from fleetctl.engine.settings import Settings
from fleetctl.engine.sleeping import Sleepers
from fleetctl.engine.turn import Turns
from fleetctl.providers.base import Backend, Reachable, Resolving
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.sources import Sources
from fleetctl.tracking.track import Track, Tracks

log = logging.getLogger("fleetctl.engine")

# Of the event loop, from a person's connection to the answer. Each would wait for a turn of its own
# while there is always another object to look at.
STEPS_OF_A_QUESTION = 8

T = TypeVar("T")
# What a start waits for until a sandbox of the same account ends.
WAITS_FOR_ROOM = frozenset({"Quota", "NoCapacity"})
Secrets = Callable[[tuple[str, ...], str], Found]  # of names in a namespace


class Recovery(Protocol):
    """After a store was put back from a backup; see daemon/adoption/recover.py."""

    unasked: set[str]  # providers at which nothing may start yet

    async def begin(self) -> None: ...
    async def go_on(self) -> None: ...


class Engine:
    """Owns the tracks, the queue and the effects. One per store; lives on one event loop."""

    def __init__(
        self,
        *,
        store: Store,
        providers: Mapping[str, Backend],
        clock: Clock,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        secrets: Secrets | None = None,
        accounts: Accounts | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.store = store
        self.providers = dict(providers)
        self.built_in = frozenset(providers)  # those that nobody has to declare
        self.accounts = accounts
        self.sources = sources
        self._helpers: list[asyncio.Future[None]] = []
        self.clock = clock
        self.settings = settings
        self.random = Random(settings.seed)  # noqa: S311 - jitter
        self.tracks = Tracks()
        self.owner_of: dict[
            str, str
        ] = {}  # run name -> uid: live runs, and the last of open sandboxes
        # Sandboxes without a record yet, whose adoption is under way.
        self.adopting: set[str] = set()
        self.queue = Queue()
        self.events: list[EventRow] = []
        self._wake = asyncio.Event()
        self._wake_later: asyncio.TimerHandle | None = None  # for facts that can wait
        self._many_live = 0  # beyond a few, at the last look
        self._stopping = False
        self.recovery: Recovery | None = None  # set where the store was put back from a backup
        self.started_at_s = clock.now_s()
        self._scan_at_s = self.started_at_s + settings.resync_s
        self.sleepers = Sleepers(self)
        self.turns = Turns(self)
        self.watcher = Watcher(self)
        self.effects = Effects(self, secrets or _no_secrets)
        self.records = Records(self)
        self.absorber = Absorber(self)
        self.reading = Reading(self)
        self.passes = Passes(self)
        self.market = Market(self)
        self.admission = Admission(self)
        self.charges = Charges(self)
        self.budgets = Budgets(self)
        self.troubles = Troubles(clock=clock, tracks=self.tracks, look=self.queue.add)
        self.leftovers = Leftovers(
            backend=self.providers.get,
            gate=self.effects.gates.__getitem__,
            backoff_s=self.effects.backoff_s,
        )
        self.abandoned: set[str] = set()  # uids of deleted objects that nobody waits for
        # provider -> sandboxes of ours without a record, as its last sweep found them
        self.unrecorded: dict[str, int] = {}

    # -- what others call --------------------------------------------------------------------------

    def notify(self, run: str) -> None:
        """A provider says that something about a run changed."""
        self.watcher.look(run)

    def poke(self, uid: str) -> None:
        """A wish changed."""
        self.queue.add(uid)
        self._wake.set()

    def poke_wishes(self) -> None:
        """Some wish changed; the store's watch tells which."""
        self._wake.set()

    def hurry(self, reason: str) -> None:
        """What made starts wait for this reason may have changed: ask again at once."""
        for uid, track in self.tracks.items():
            for run in [run for run, wait in track.waits.items() if wait.reason == reason]:
                if run in track.calls:
                    track.calls[run].retry_at_s = 0.0
                    self.poke(uid)

    def freed(self, provider: str) -> None:
        """A sandbox of ours ended there: one start that waits for such room is asked for at once,
        the one that waits for the longest.
        """
        found: tuple[float, str] | None = None
        for track in self.tracks.values():
            for run, wait in track.waits.items():
                call, known = track.calls.get(run), self._live(track, run)
                if call is None or known is None or known.provider != provider or call.busy:
                    continue
                if wait.reason not in WAITS_FOR_ROOM or not call.retry_at_s:
                    continue
                found = min(found or (known.created_at_s, run), (known.created_at_s, run))
        if found is not None:
            self.hurry_start(found[1])

    def _live(self, track: Track, run: str) -> Run | None:
        return track.history.live.get(run) if track.history is not None else None

    def provided(self) -> None:
        """A Provider object came, changed or went: who starts or waits for room looks again."""
        if not self.market.refresh():
            return
        self.effects.limit_creates(self.market.said)
        self.admission.reckon(self.clock.now_s())
        for uid, track in self.tracks.items():
            if track.history is not None:
                self.queue.add(uid)

    def admit(self, name: str, backend: Backend) -> None:
        """The backend of a declared provider is this from now on. Idempotent."""
        known = self.providers.get(name)
        if known is backend:
            return
        self.providers[name] = backend
        self.effects.add_gate(name)
        if known is None:
            self.watcher.add(name)
            if self._helpers:
                self._watch(name)

    def hurry_object(self, uid: str) -> None:
        """Somebody applied it again: whatever its starts wait for may be there now."""
        track = self.tracks.get(uid)
        if track is not None:
            track.forget_places()
        for run in list(track.waits) if track is not None else ():
            self.hurry_start(run)

    def hurry_start(self, run: str) -> None:
        """What this one start waits for may be there now."""
        uid = self.owner_of.get(run)
        track = self.tracks.get(uid) if uid is not None else None
        if track is not None and run in track.waits and run in track.calls:
            track.calls[run].retry_at_s = 0.0
            self.poke(track.resource.uid)

    def tell(self, fact: Fact) -> None:
        """An effect or an observer brings a fact."""
        self.turns.facts.append(fact)
        if not (self._many_live and can_wait(fact)):
            self._wake.set()
        elif self._wake_later is None:
            loop = asyncio.get_running_loop()
            self._wake_later = loop.call_later(self.settings.news_wait_s, self._wake.set)

    def holds_starts(self, provider: str) -> bool:
        """What it has begun since the backup is not known yet; see adoption/recover.py."""
        return self.recovery is not None and provider in self.recovery.unasked

    def stop(self) -> None:
        """End `run` soon. Work goes on at the providers."""
        self._stopping = True
        self._wake.set()

    def say(self, uid: str, reason: str, message: str, *, kind: str = "Normal") -> None:
        """An event for people; written after the turn's transaction."""
        self.events.append(EventRow(uid, self.clock.now_s(), kind, reason, message))

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop` is called or the task is cancelled. Raises StoreError when it is final."""
        self.turns.load()
        if self.recovery is not None:
            await self.recovery.begin()
            self.turns.load()
            self._help(self.recovery.go_on)
        self._help(partial(sweep_forever, self))
        self._help(partial(forget_forever, self))
        for name in self.providers:
            self._watch(name)
        try:
            while not self._stopping:
                self.turns.make()
                await self._sleep()
        finally:
            helpers, self._helpers = self._helpers, []
            for task in helpers:
                task.cancel()
            await self.effects.cancel_all()
            await self.leftovers.close()
            await asyncio.gather(*helpers, return_exceptions=True)

    def _watch(self, provider: str) -> None:
        """Its runs, and where that can be asked, whether its service answers."""
        self._help(partial(self.watcher.run, provider))
        if isinstance(self.providers[provider], Reachable):
            self._help(
                partial(
                    watch_reach,
                    provider,
                    partial(self.providers.__getitem__, provider),
                    tracks=lambda: list(self.tracks.values()),
                    troubles=self.troubles,
                    changed=self._wake.set,
                )
            )

    def _help(self, work: Callable[[], Awaitable[None]]) -> None:
        self._helpers.append(asyncio.ensure_future(self._forever(work)))

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """A helper that a bug of ours ends begins again: without it nothing is ever seen."""
        while True:
            await reported(work(), what="helper")
            await asyncio.sleep(self.settings.retry_max_s)

    async def _sleep(self) -> None:
        """Until a fact, a wish, the next due key or the next full scan."""
        now_s = self.clock.now_s()
        if self.turns.facts and now_s >= self.turns.again_at_s:
            await _serve_others()
            return
        if now_s >= self._scan_at_s:
            # The slow full scan under the events; it comes in its time, however many come.
            self._scan_at_s = now_s + self.settings.resync_s
            self.sleepers.look(now_s)
        dues_s = (self._scan_at_s, self.queue.next_due_at_s(), self.sleepers.look_at_s)
        until_s = min(at_s for at_s in dues_s if at_s is not None)
        # While the store refuses, the facts wait; they must not keep the loop turning.
        until_s = max(until_s, self.turns.again_at_s)
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(max(0.0, until_s - now_s), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()
        await _serve_others()
        await self._gather_events()
        self._wake.clear()
        if self._wake_later is not None:
            self._wake_later.cancel()
            self._wake_later = None

    async def _gather_events(self) -> None:
        """With many live runs, let a turn answer several events."""
        self._many_live = max(0, self.live_runs() - self.settings.few_live)
        gap_s = min(self._many_live * self.settings.turn_gap_each_s, self.settings.turn_gap_max_s)
        wait_s = self.turns.made_at_s + gap_s - self.clock.now_s()
        if 0 < wait_s <= gap_s:  # a clock that was set back delays nothing
            await asyncio.sleep(wait_s)

    # -- questions ---------------------------------------------------------------------------------

    def live_runs(self) -> int:
        return sum(len(t.history.live) for t in self.tracks.values() if t.history is not None)

    def idle(self) -> bool:
        """Nothing is live, nothing is wished for that has not been reached, and of no start, stop
        or orphan of ours the end is open.
        """
        busy = any(
            not track.dormant and track.status.get("phase") not in ("Ready", "Suspended")
            for track in self.tracks.values()
        )
        return (
            not busy
            and not self.live_runs()
            and not self.turns.facts
            and not self.leftovers
            and not any(self.unrecorded.values())
            and not any(map(_unresolved, self.providers.values()))
        )


def _unresolved(backend: Backend) -> bool:
    return isinstance(backend, Resolving) and backend.unresolved()


async def _serve_others() -> None:
    """Let who asks something be answered between two turns."""
    for _ in range(STEPS_OF_A_QUESTION):
        await asyncio.sleep(0)


def _no_secrets(names: tuple[str, ...], _namespace: str) -> Found:
    raise Unavailable(f"this engine has no secrets: {', '.join(names)}", reason="SecretMissing")
