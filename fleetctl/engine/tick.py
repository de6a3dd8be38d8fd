"""A tick: take in messages, decide due keys, make both durable, then drive.

    messages and due keys --tick--> [take in, reconcile, lint, write] in one transaction --> drive
    the live runs

Recovery takes the same path: at the start every live row is driven as in any other tick. No action
directly follows an event: an event only names the key to look at. With boundary.py the only module
that catches Exception.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.engine.shared.messages import AssetReplied, Message
from fleetctl.stores.base import FROM_NOW
from fleetctl.stores.sqlite_errors import DiskFull
from fleetctl.tracking.track import Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import ProviderAdmission
    from fleetctl.engine.decide.passes import Passes
    from fleetctl.engine.decide.work_loader import WorkLoader
    from fleetctl.engine.execute.executor import PlanExecutor
    from fleetctl.engine.observe.intake import Intake
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.engine.shared.part import EngineParts
    from fleetctl.engine.sleeping import Sleepers

log = logging.getLogger("fleetctl.engine")


class Ticks:
    """The state that ticks of an engine carry from one to the next."""

    def __init__(
        self,
        state: EngineState,
        *,
        sleepers: Sleepers,
        reading: WorkLoader,
        passes: Passes,
        intake: Intake,
        records: Records,
        admission: ProviderAdmission,
        effects: PlanExecutor,
        parts: EngineParts,
    ) -> None:
        self._state = state
        self._sleepers = sleepers
        self._reading = reading
        self._passes = passes
        self._intake = intake
        self._records = records
        self._admission = admission
        self._effects = effects
        self._parts = parts
        self.made_at_s = 0.0
        self.again_at_s = 0.0  # while the store refuses, no tick before this
        self._tries = 0
        self._watched = 0  # the last spec seen

    def make(self) -> None:
        """Absorbs messages, decides what is due, makes both durable, then drives."""
        now_s = self._state.clock.now_s()
        if now_s < self.again_at_s:
            return
        self.made_at_s = now_s
        self._take_desired()
        keys = self._state.queue.take(now_s, keys_max=self._state.settings.keys_per_tick_max)
        sleepers = self._sleepers
        inbox = self._state.inbox
        facts, inbox.facts = self._take_facts()
        if not facts and not keys and not sleepers.is_due(now_s):
            return
        try:
            with self._state.store.transaction():
                if sleepers.is_due(now_s):
                    sleepers.wake(now_s)  # the next ticks look at them
                touched = self._observe(facts, now_s)
                # A pass may read rows back, so they must contain the messages just taken in.
                self._records.write()
                looked = self._list_looked([*keys, *touched], now_s)
                done = dict.fromkeys(looked)
                for uid in done:
                    self._state.queue.discard(uid)
                    self._pass(uid, now_s)
                for part in self._parts.awake("end_tick"):
                    for uid in part.end_tick():
                        self._pass(uid, now_s)
                self._records.write()
                self._state.store.events.record(self._state.events)
                decided_at_s = self._state.clock.now_s()
        except StoreError as error:
            self._state.figures.tick_failures += 1
            log.error("store write failed", extra={"error": str(error)})
            if error.final:
                raise  # a controller that can never write again must not look alive
            if isinstance(error, DiskFull):
                self._admission.pause(now_s)
            self._start_over(now_s)
            return
        except Exception:  # a tick that fails in any way starts over
            self._state.figures.tick_failures += 1
            log.exception("tick failed")
            self._start_over(now_s)
            return
        self._tries = 0
        self._state.figures.ticks += 1
        committed_at_s = self._state.clock.now_s()
        self._state.figures.tick_s += committed_at_s - now_s
        self._state.figures.commit_s += committed_at_s - decided_at_s
        self._state.events.clear()
        for part in self._parts.awake("committed"):
            part.committed()
        begins, self._records.begins = self._records.begins, set()
        for uid in dict.fromkeys([*done, *sorted(begins)]):
            self._drive(uid, now_s)

    def load(self) -> None:
        """Reads every resource that does not sleep, and the history of each unfinished one.

        All resources, before any pass: the usage of one object limits the starts of another.
        """
        self._state.tracks.forget()
        self._state.dependents.forget()
        self._state.owner_of.clear()
        self._state.inbox.facts.clear()
        self._state.changed_rows.clear()
        self._watched, _ = self._state.store.resources.watch(FROM_NOW)
        for uid in self._sleepers.awake(self._state.clock.now_s()):
            resource = self._state.store.resources.of(uid)
            if resource is None:
                continue
            track = self._state.tracks.hold(track_of(resource))
            self._state.queue.add(uid)
            if not track.dormant:
                self._read(track)
        for part in self._parts.that("load"):
            part.load()

    def _read(self, track: Track) -> None:
        try:
            self._reading.read(track)
        except StoreError:
            raise
        except Exception:  # its pass will raise the same, and report it in its status
            log.exception("resource not readable", extra={"uid": track.resource.uid})
            track.outdate()

    def _list_looked(self, uids: list[str], now_s: float) -> list[str]:
        """Returns the uids to look at in this tick, in order: these, and those that parts name."""
        for row in self._reading.fresh(self._parts.at_once):
            self._parts.at_once[row.kind].take(row.uid)
        looked = list(uids)
        for part in self._parts.awake("begin_tick"):
            looked += part.begin_tick(now_s)
        for part in self._parts.awake("order"):
            looked = part.order(looked, self._state.changed_rows)
        return looked

    def _observe(self, facts: list[Message], now_s: float) -> list[str]:
        """Returns the uids that must be looked at after these messages, in the order of the
        messages.
        """
        touched: list[str] = []
        for fact in facts:
            track = self.track_of(fact)
            try:
                looked = track is not None and self._intake.observe(track, fact, now_s)
            except StoreError:
                raise
            # A message that cannot be true stops the object that it speaks of, and no other (P7).
            except Exception as error:
                log.exception("fact not absorbed", extra={"fact": fact})
                looked = False
                if track is not None:
                    self._passes.failed(track.resource.uid, error, now_s)
            if looked and track is not None:
                touched.append(track.resource.uid)
        return touched

    def _drive(self, uid: str, now_s: float) -> None:
        track = self._state.tracks.get(uid)
        try:
            if track is not None:
                self._effects.drive(track, now_s)
        except Exception:  # one bad object never stops the others (P7)
            log.exception("drive failed", extra={"uid": uid})
            self._state.queue.add(uid, now_s + self._state.settings.retry_max_s)

    def _pass(self, uid: str, now_s: float) -> None:
        try:
            self._passes.make(uid, now_s)
        except StoreError:
            raise
        except Exception as error:  # one bad object never stops the others (P7)
            log.exception("pass failed", extra={"uid": uid})
            self._passes.failed(uid, error, now_s)

    def _take_facts(self) -> tuple[list[Message], list[Message]]:
        """Takes a limited number of messages, so that no tick makes a user wait: messages of many
        objects each need a pass.
        """
        settings = self._state.settings
        owner_of = self._state.owner_of
        facts = self._state.inbox.facts
        at = 0
        uids = set()
        for fact in facts[: settings.messages_per_tick_max]:
            uids.add(fact.uid if isinstance(fact, AssetReplied) else owner_of.get(fact.run))
            if len(uids) > settings.keys_per_tick_max:
                break
            at += 1
        return facts[:at], facts[at:]

    def _take_desired(self) -> None:
        """Takes in the resources written since the last look, by specs made through the store."""
        self._watched, rows = self._state.store.resources.watch(self._watched)
        for row in rows:
            self._state.changed_rows[row.uid] = row
            self._state.queue.add(row.uid)
            for part in self._parts.awake("row_written"):
                part.row_written(row)

    def _start_over(self, now_s: float) -> None:
        """Discards this tick, and reads the stored state back, a little later."""
        self._tries += 1
        wait_s = self._state.settings.retry_initial_s * 2.0 ** min(self._tries, 32)
        self.again_at_s = now_s + min(wait_s, self._state.settings.retry_max_s)
        # The state of calls goes with the tracks; from here the bounds are waited out again.
        self._effects.drop_all()
        self._state.started_at_s = now_s
        self._state.events.clear()
        self._records.forget()
        for part in self._parts.that("forget"):
            part.forget()
        self.load()
        for uid in self._state.tracks:
            self._state.queue.add(uid)

    def track_of(self, message: Message) -> Track | None:
        """Returns the resource of a message; None when its run is no longer known."""
        uid = (
            message.uid
            if isinstance(message, AssetReplied)
            else self._state.owner_of.get(message.run)
        )
        if uid is not None:
            return self._state.tracks.get(uid)
        return None
