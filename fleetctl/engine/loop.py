"""The loop: facts in, one durable transaction, effects out. The only place that catches Exception.

    facts and due keys --turn--> [absorb, reconcile, lint, write] in one transaction --> drive the
    live runs

Recovery is no second path: at the start every live row is driven as in any other turn. Nothing is
done
directly in reaction to an event: an event only says which key to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import TypeVar

from controllers.model import RunState
from fleetctl.clock import Clock
from fleetctl.engine.absorb import Absorber
from fleetctl.engine.admission import Admission
from fleetctl.engine.budgets import Budgets
from fleetctl.engine.effects import Effects
from fleetctl.engine.facts import AssetReplied, Fact
from fleetctl.engine.guard import NoAnswer
from fleetctl.engine.market import Market
from fleetctl.engine.passes import Passes
from fleetctl.engine.providing import Accounts
from fleetctl.engine.queue import Queue
from fleetctl.engine.secrets import Found
from fleetctl.engine.settings import Settings
from fleetctl.engine.sweeper import sweep_forever
from fleetctl.engine.track import Track, track_of
from fleetctl.engine.watching import Watcher
from fleetctl.errors import FleetctlError, Refused, StoreError, Unavailable
from fleetctl.providers.base import Backend
from fleetctl.stores.base import DiskFull, EventRow, Store

log = logging.getLogger("fleetctl.engine")

T = TypeVar("T")
Secrets = Callable[[tuple[str, ...], str], Found]  # of names in a namespace


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
    ) -> None:
        self.store = store
        self.providers = dict(providers)
        self.built_in = frozenset(providers)  # those that nobody has to declare
        self.accounts = accounts
        self._helpers: list[asyncio.Future[None]] = []
        self.clock = clock
        self.settings = settings
        self.random = Random(settings.seed)  # noqa: S311 - jitter
        self.tracks: dict[str, Track] = {}
        self.owner_of: dict[
            str, str
        ] = {}  # run name -> uid: live runs, and the last of open sandboxes
        # Sandboxes without a record yet, whose adoption is under way.
        self.adopting: set[str] = set()
        self.queue = Queue()
        self.events: list[EventRow] = []
        self._inbox: list[Fact] = []
        self._wake = asyncio.Event()
        self._turned_at_s = 0.0
        self._stopping = False
        self.started_at_s = clock.now_s()
        self._store_retry_at_s = 0.0
        self._store_tries = 0
        self._scan_at_s = self.started_at_s + settings.resync_s
        self._watched = 0
        self.watcher = Watcher(self)
        self.effects = Effects(self, secrets or _no_secrets)
        self.absorber = Absorber(self)
        self.passes = Passes(self)
        self.market = Market(self)
        self.admission = Admission(self)
        self.budgets = Budgets(self)

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
                self._help(partial(self.watcher.run, name))

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
        self._inbox.append(fact)
        self._wake.set()

    def stop(self) -> None:
        """End `run` soon. Work goes on at the providers."""
        self._stopping = True
        self._wake.set()

    def say(self, uid: str, reason: str, message: str, *, kind: str = "Normal") -> None:
        """An event for people; written after the turn's transaction."""
        self.events.append(EventRow(uid, self.clock.now_s(), kind, reason, message))

    # -- the loop ----------------------------------------------------------------------------------

    async def guarded(self, work: Awaitable[T], *, what: str, key: str) -> T | NoAnswer:
        """What a provider's call returned, or a sentence why nothing is known of its outcome.

        Refused, Unavailable and cancellation pass through: they mean something to the caller.
        """
        try:
            return await work
        except (Refused, Unavailable):
            raise
        except TimeoutError:
            return NoAnswer("the provider did not answer in time")
        except Exception as error:
            log.exception("provider call failed", extra={"what": what, "key": key})
            return NoAnswer(f"the {what} ended with {type(error).__name__}")

    async def reported(self, work: Awaitable[T], *, what: str) -> T | None:
        """What `work` returned; None when a bug of ours ended it; the log has its traceback."""
        try:
            return await work
        except FleetctlError:
            raise
        except Exception:
            log.exception("work failed", extra={"what": what})
            return None

    async def run(self) -> None:
        """Until `stop` is called or the task is cancelled. Raises StoreError when it is final."""
        self.load()
        self._help(partial(sweep_forever, self))
        for name in self.providers:
            self._help(partial(self.watcher.run, name))
        try:
            while not self._stopping:
                self.turn()
                await self._sleep()
        finally:
            helpers, self._helpers = self._helpers, []
            for task in helpers:
                task.cancel()
            await self.effects.cancel_all()
            await asyncio.gather(*helpers, return_exceptions=True)

    def _help(self, work: Callable[[], Awaitable[None]]) -> None:
        self._helpers.append(asyncio.ensure_future(self._forever(work)))

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """A helper that a bug of ours ends begins again: without it nothing is ever seen."""
        while True:
            await self.reported(work(), what="helper")
            await asyncio.sleep(self.settings.retry_max_s)

    def load(self) -> None:
        """Read every resource, and the history of each that is not over.

        All of them, before any pass: what one object holds limits what another may start.
        """
        self.tracks.clear()
        self.owner_of.clear()
        self._inbox.clear()
        self.passes.wished.clear()
        self._watched, _ = self.store.resources.watch(0)
        for resource in self.store.resources.list():
            track = self.tracks[resource.uid] = track_of(resource)
            free_at_s = track.free_at_s if track.dormant else 0.0
            if free_at_s is not None:
                self.queue.add(resource.uid, free_at_s)
            if not track.dormant:
                self._read(track)
        self.budgets.load()
        self.provided()

    def _read(self, track: Track) -> None:
        try:
            self.passes.read(track)
        except StoreError:
            raise
        except Exception:
            # Its pass will raise the same, and say so in its status.
            log.exception("resource not readable", extra={"uid": track.resource.uid})
            track.spec, track.controller, track.history = None, None, None

    def turn(self) -> None:
        """Absorb what is known, decide what is due, make both durable, then drive."""
        now_s = self.clock.now_s()
        if now_s < self._store_retry_at_s:
            return
        self._turned_at_s = now_s
        self._take_wishes()
        keys = self.queue.take(now_s, keys_max=self.settings.keys_per_turn_max)
        facts, self._inbox = self._take_facts()
        if not facts and not keys:
            return
        try:
            with self.store.transaction():
                touched = self._absorb(facts, now_s)
                # A pass may read rows back, so they must say what was just absorbed.
                self.absorber.write()
                roomy = [*self.admission.count(now_s), *self.budgets.count(now_s)]
                done = dict.fromkeys([*keys, *touched, *roomy])
                for uid in done:
                    self.queue.discard(uid)
                    self._pass(uid, now_s)
                for uid in self.budgets.changed():
                    self._pass(uid, now_s)
                self.absorber.write()
                self.store.events.record(self.events)
        except StoreError as error:
            log.error("store write failed", extra={"error": str(error)})
            if error.final:
                raise  # a controller that can never write again must not look alive
            if isinstance(error, DiskFull):
                self.admission.pause(now_s)
            self._start_over(now_s)
            return
        except Exception:
            log.exception("turn failed")
            self._start_over(now_s)
            return
        self._store_tries = 0
        self.events.clear()
        begins, self.absorber.begins = self.absorber.begins, set()
        for uid in dict.fromkeys([*done, *sorted(begins)]):
            self._drive(uid, now_s)

    def _absorb(self, facts: list[Fact], now_s: float) -> list[str]:
        """The uids that must be looked at because of these facts, in the order of the facts."""
        touched: list[str] = []
        for fact in facts:
            track = self.track_of(fact)
            try:
                looked = self.absorber.absorb(fact, now_s)
            except StoreError:
                raise
            except Exception as error:
                # A fact that cannot be true stops the object that it speaks of, and no other (P7).
                log.exception("fact not absorbed", extra={"fact": fact})
                looked = False
                if track is not None:
                    self.passes.failed(track.resource.uid, error, now_s)
            if looked and track is not None:
                touched.append(track.resource.uid)
        return touched

    def _drive(self, uid: str, now_s: float) -> None:
        track = self.tracks.get(uid)
        try:
            if track is not None:
                self.effects.drive(track, now_s)
        except Exception:
            log.exception("drive failed", extra={"uid": uid})
            self.queue.add(uid, now_s + self.settings.retry_max_s)

    def _pass(self, uid: str, now_s: float) -> None:
        try:
            self.passes.make(uid, now_s)
        except StoreError:
            raise
        except Exception as error:
            # One bad object never stops the others (P7).
            log.exception("pass failed", extra={"uid": uid})
            self.passes.failed(uid, error, now_s)

    def _take_facts(self) -> tuple[list[Fact], list[Fact]]:
        at = self.settings.facts_per_turn_max
        return self._inbox[:at], self._inbox[at:]

    def _take_wishes(self) -> None:
        """Which resources were written since the last look, by wishes made through the store."""
        self._watched, rows = self.store.resources.watch(self._watched)
        for row in rows:
            self.passes.wished[row.uid] = row
            self.queue.add(row.uid)

    async def _sleep(self) -> None:
        """Until a fact, a wish, the next due key or the next full scan."""
        now_s = self.clock.now_s()
        if self._inbox and now_s >= self._store_retry_at_s:
            await asyncio.sleep(0)
            return
        if now_s >= self._scan_at_s:
            self._scan(now_s)
        due_at_s = self.queue.next_due_at_s()
        until_s = self._scan_at_s if due_at_s is None else min(due_at_s, self._scan_at_s)
        # While the store refuses, the facts wait; they must not keep the loop turning.
        until_s = max(until_s, self._store_retry_at_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - now_s)):
                await self._wake.wait()
        await self._gather_events()
        self._wake.clear()

    async def _gather_events(self) -> None:
        """With many live runs, let a turn answer several events."""
        many = max(0, self.live_runs() - self.settings.few_live)
        gap_s = min(many * self.settings.turn_gap_each_s, self.settings.turn_gap_max_s)
        wait_s = self._turned_at_s + gap_s - self.clock.now_s()
        if 0 < wait_s <= gap_s:  # a clock that was set back delays nothing
            await asyncio.sleep(wait_s)

    def _scan(self, now_s: float) -> None:
        """The slow full scan under the events; it comes in its time, however many come."""
        self._scan_at_s = now_s + self.settings.resync_s
        for uid, track in self.tracks.items():
            if not track.dormant:
                self.queue.add(uid)

    def _start_over(self, now_s: float) -> None:
        """Nothing of this turn happened: forget it and read the truth back, a little later."""
        self._store_tries += 1
        wait_s = self.settings.retry_initial_s * 2.0 ** min(self._store_tries, 32)
        self._store_retry_at_s = now_s + min(wait_s, self.settings.retry_max_s)
        # What is known of calls goes with the tracks; from here the bounds are waited out anew.
        self.effects.drop_all()
        self.started_at_s = now_s
        self.events.clear()
        self.absorber.forget()
        self.load()
        for uid in self.tracks:
            self.queue.add(uid)

    def track_of(self, fact: Fact) -> Track | None:
        """The resource that a fact speaks of; None when it is of nobody's run any more."""
        uid = fact.uid if isinstance(fact, AssetReplied) else self.owner_of.get(fact.run)
        return self.tracks.get(uid) if uid is not None else None

    # -- questions ---------------------------------------------------------------------------------

    def live_runs(self) -> int:
        return sum(len(t.history.live) for t in self.tracks.values() if t.history is not None)

    def idle(self) -> bool:
        """Nothing is live and nothing is wished for that has not been reached."""
        busy = any(
            not track.dormant and track.status.get("phase") not in ("Ready", "Suspended")
            for track in self.tracks.values()
        )
        return not busy and not self.live_runs() and not self._inbox

    def run_states(self) -> dict[RunState, int]:
        counts: dict[RunState, int] = {}
        for track in self.tracks.values():
            for run in track.history.live.values() if track.history else ():
                counts[run.state] = counts.get(run.state, 0) + 1
        return counts


def _no_secrets(names: tuple[str, ...], _namespace: str) -> Found:
    raise Unavailable(f"this engine has no secrets: {', '.join(names)}", reason="SecretMissing")
