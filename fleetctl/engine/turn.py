"""A turn: absorb what is known, decide what is due, make both durable, then drive.

    facts and due keys --turn--> [absorb, reconcile, lint, write] in one transaction --> drive the
    live runs

Recovery is no second path: at the start every live row is driven as in any other turn. Nothing is
done directly in reaction to an event: an event only says which key to look at. With boundary.py the
only place that catches Exception.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.engine.messages import AssetReplied, Fact
from fleetctl.stores.base import FROM_NOW, DiskFull
from fleetctl.tracking.track import Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.engine import Engine

log = logging.getLogger("fleetctl.engine")


class Turns:
    """What the turns of an engine need from one to the next."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.facts: list[Fact] = []  # not absorbed yet
        self.made_at_s = 0.0
        self.again_at_s = 0.0  # while the store refuses, no turn before this
        self._tries = 0
        self._watched = 0  # the last wish seen

    def make(self) -> None:
        """Absorb what is known, decide what is due, make both durable, then drive."""
        now_s = self._engine.clock.now_s()
        if now_s < self.again_at_s:
            return
        self.made_at_s = now_s
        self._take_wishes()
        keys = self._engine.queue.take(now_s, keys_max=self._engine.settings.keys_per_turn_max)
        facts, self.facts = self._take_facts()
        sleepers = self._engine.sleepers
        if not facts and not keys and not sleepers.is_due(now_s):
            return
        try:
            with self._engine.store.transaction():
                if sleepers.is_due(now_s):
                    sleepers.wake(now_s)  # the next turns look at them
                touched = self._absorb(facts, now_s)
                # A pass may read rows back, so they must say what was just absorbed.
                self._engine.records.write()
                roomy = [*self._engine.admission.count(now_s), *self._engine.budgets.count(now_s)]
                done = dict.fromkeys([*keys, *touched, *roomy])
                for uid in done:
                    self._engine.queue.discard(uid)
                    self._pass(uid, now_s)
                for uid in self._engine.budgets.changed():
                    self._pass(uid, now_s)
                self._engine.records.write()
                self._engine.store.events.record(self._engine.events)
        except StoreError as error:
            log.error("store write failed", extra={"error": str(error)})
            if error.final:
                raise  # a controller that can never write again must not look alive
            if isinstance(error, DiskFull):
                self._engine.admission.pause(now_s)
            self._start_over(now_s)
            return
        except Exception:
            log.exception("turn failed")
            self._start_over(now_s)
            return
        self._tries = 0
        self._engine.events.clear()
        begins, self._engine.records.begins = self._engine.records.begins, set()
        for uid in dict.fromkeys([*done, *sorted(begins)]):
            self._drive(uid, now_s)

    def load(self) -> None:
        """Read every resource that does not sleep, and the history of each that is not over.

        All of them, before any pass: what one object holds limits what another may start.
        """
        self._engine.tracks.forget()
        self._engine.owner_of.clear()
        self.facts.clear()
        self._engine.reading.wished.clear()
        self._watched, _ = self._engine.store.resources.watch(FROM_NOW)
        for uid in self._engine.sleepers.awake(self._engine.clock.now_s()):
            resource = self._engine.store.resources.of(uid)
            if resource is None:
                continue
            track = self._engine.tracks.hold(track_of(resource))
            self._engine.queue.add(uid)
            if not track.dormant:
                self._read(track)
        self._engine.charges.load()
        self._engine.budgets.load()
        self._engine.provided()

    def _read(self, track: Track) -> None:
        try:
            self._engine.reading.read(track)
        except StoreError:
            raise
        except Exception:
            # Its pass will raise the same, and say so in its status.
            log.exception("resource not readable", extra={"uid": track.resource.uid})
            track.spec, track.controller, track.history = None, None, None

    def _absorb(self, facts: list[Fact], now_s: float) -> list[str]:
        """The uids that must be looked at because of these facts, in the order of the facts."""
        touched: list[str] = []
        for fact in facts:
            track = self.track_of(fact)
            try:
                looked = self._engine.absorber.absorb(fact, now_s)
            except StoreError:
                raise
            except Exception as error:
                # A fact that cannot be true stops the object that it speaks of, and no other (P7).
                log.exception("fact not absorbed", extra={"fact": fact})
                looked = False
                if track is not None:
                    self._engine.passes.failed(track.resource.uid, error, now_s)
            if looked and track is not None:
                touched.append(track.resource.uid)
        return touched

    def _drive(self, uid: str, now_s: float) -> None:
        track = self._engine.tracks.get(uid)
        try:
            if track is not None:
                self._engine.effects.drive(track, now_s)
        except Exception:
            log.exception("drive failed", extra={"uid": uid})
            self._engine.queue.add(uid, now_s + self._engine.settings.retry_max_s)

    def _pass(self, uid: str, now_s: float) -> None:
        try:
            self._engine.passes.make(uid, now_s)
        except StoreError:
            raise
        except Exception as error:
            # One bad object never stops the others (P7).
            log.exception("pass failed", extra={"uid": uid})
            self._engine.passes.failed(uid, error, now_s)

    def _take_facts(self) -> tuple[list[Fact], list[Fact]]:
        """So many that no turn makes a person wait: of many objects each needs a pass."""
        settings, owner_of = self._engine.settings, self._engine.owner_of
        at, uids = 0, set()
        for fact in self.facts[: settings.facts_per_turn_max]:
            uids.add(fact.uid if isinstance(fact, AssetReplied) else owner_of.get(fact.run))
            if len(uids) > settings.keys_per_turn_max:
                break
            at += 1
        return self.facts[:at], self.facts[at:]

    def _take_wishes(self) -> None:
        """Which resources were written since the last look, by wishes made through the store."""
        self._watched, rows = self._engine.store.resources.watch(self._watched)
        for row in rows:
            self._engine.reading.wished[row.uid] = row
            self._engine.queue.add(row.uid)

    def _start_over(self, now_s: float) -> None:
        """Nothing of this turn happened: forget it and read the truth back, a little later."""
        self._tries += 1
        wait_s = self._engine.settings.retry_initial_s * 2.0 ** min(self._tries, 32)
        self.again_at_s = now_s + min(wait_s, self._engine.settings.retry_max_s)
        # What is known of calls goes with the tracks; from here the bounds are waited out anew.
        self._engine.effects.drop_all()
        self._engine.started_at_s = now_s
        self._engine.events.clear()
        self._engine.records.forget()
        self.load()
        for uid in self._engine.tracks:
            self._engine.queue.add(uid)

    def track_of(self, fact: Fact) -> Track | None:
        """The resource that a fact speaks of; None when it is of nobody's run any more."""
        uid = fact.uid if isinstance(fact, AssetReplied) else self._engine.owner_of.get(fact.run)
        return self._engine.tracks.get(uid) if uid is not None else None
