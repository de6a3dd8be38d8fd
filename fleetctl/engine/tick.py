"""A tick: take in what is known, decide what is due, make both durable, then drive.

    messages and due keys --tick--> [take in, reconcile, lint, write] in one transaction --> drive
    the live runs

Recovery takes the same path: at the start every live row is driven as in any other tick. Nothing is
done directly in reaction to an event: an event only says which key to look at. With boundary.py the
only place that catches Exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.engine.kinds.notices.notices import NOTIFIER
from fleetctl.engine.kinds.queues.queues import QUEUE
from fleetctl.engine.money.budgets import BUDGET
from fleetctl.engine.shared.messages import AssetReplied, Message
from fleetctl.stores.base import FROM_NOW
from fleetctl.stores.errors import DiskFull
from fleetctl.tracking.track import Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import Admission
    from fleetctl.engine.decide.load import Reading
    from fleetctl.engine.decide.passes import Passes
    from fleetctl.engine.execute.executor import Effects
    from fleetctl.engine.kinds.gitops.sources import Sources
    from fleetctl.engine.kinds.notices.notices import Notices
    from fleetctl.engine.kinds.queues.queues import Queues
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.money.ledger import Charges
    from fleetctl.engine.observe.intake import Intake
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.state import State
    from fleetctl.engine.sleeping import Sleepers

log = logging.getLogger("fleetctl.engine")


class Ticks:
    """What the ticks of an engine need from one to the next.

    provided: a Provider object came, changed or went.
    """

    def __init__(
        self,
        state: State,
        *,
        sleepers: Sleepers,
        reading: Reading,
        passes: Passes,
        intake: Intake,
        records: Records,
        admission: Admission,
        charges: Charges,
        budgets: Budgets,
        notices: Notices,
        queues: Queues,
        effects: Effects,
        sources: Sources,
        provided: Callable[[], None],
    ) -> None:
        self._state, self._sleepers, self._reading = state, sleepers, reading
        self._passes, self._intake, self._records = passes, intake, records
        self._admission, self._charges, self._budgets = admission, charges, budgets
        self._effects, self._provided, self._sources = effects, provided, sources
        self._notices, self._queues = notices, queues
        self.made_at_s = 0.0
        self.again_at_s = 0.0  # while the store refuses, no tick before this
        self._tries = 0
        self._watched = 0  # the last spec seen

    def make(self) -> None:
        """Absorb what is known, decide what is due, make both durable, then drive."""
        now_s = self._state.clock.now_s()
        if now_s < self.again_at_s:
            return
        self.made_at_s = now_s
        self._take_desired()
        keys = self._state.queue.take(now_s, keys_max=self._state.settings.keys_per_tick_max)
        sleepers, inbox = self._sleepers, self._state.inbox
        facts, inbox.facts = self._take_facts()
        if not facts and not keys and not sleepers.is_due(now_s):
            return
        try:
            with self._state.store.transaction():
                if sleepers.is_due(now_s):
                    sleepers.wake(now_s)  # the next ticks look at them
                touched = self._observe(facts, now_s)
                # A pass may read rows back, so they must say what was just taken in.
                self._records.write()
                for uid in self._reading.fresh(BUDGET):
                    self._budgets.take(uid)
                for uid in self._reading.fresh(NOTIFIER):
                    self._notices.take(uid)
                for uid in self._reading.fresh(QUEUE):
                    self._state.queue.add(uid)
                roomy = [*self._admission.count(now_s), *self._budgets.count(now_s)]
                roomy += self._queues.count(now_s)
                looked = self._queues.in_turn([*keys, *touched, *roomy], self._reading.changed_rows)
                done = dict.fromkeys(looked)
                for uid in done:
                    self._state.queue.discard(uid)
                    self._pass(uid, now_s)
                for uid in self._budgets.changed():
                    self._pass(uid, now_s)
                self._records.write()
                self._state.store.events.record(self._state.events)
        except StoreError as error:
            log.error("store write failed", extra={"error": str(error)})
            if error.final:
                raise  # a controller that can never write again must not look alive
            if isinstance(error, DiskFull):
                self._admission.pause(now_s)
            self._start_over(now_s)
            return
        except Exception:
            log.exception("tick failed")
            self._start_over(now_s)
            return
        self._tries = 0
        self._state.events.clear()
        begins, self._records.begins = self._records.begins, set()
        for uid in dict.fromkeys([*done, *sorted(begins)]):
            self._drive(uid, now_s)

    def load(self) -> None:
        """Read every resource that does not sleep, and the history of each that is not over.

        All of them, before any pass: what one object holds limits what another may start.
        """
        self._state.tracks.forget()
        self._state.dependents.forget()
        self._state.owner_of.clear()
        self._state.inbox.facts.clear()
        self._reading.changed_rows.clear()
        self._watched, _ = self._state.store.resources.watch(FROM_NOW)
        for uid in self._sleepers.awake(self._state.clock.now_s()):
            resource = self._state.store.resources.of(uid)
            if resource is None:
                continue
            track = self._state.tracks.hold(track_of(resource))
            self._state.queue.add(uid)
            if not track.dormant:
                self._read(track)
        self._charges.load()
        self._budgets.load()
        self._notices.load()
        self._queues.load()
        self._provided()

    def _read(self, track: Track) -> None:
        try:
            self._reading.read(track)
        except StoreError:
            raise
        except Exception:
            # Its pass will raise the same, and say so in its status.
            log.exception("resource not readable", extra={"uid": track.resource.uid})
            track.outdate()

    def _observe(self, facts: list[Message], now_s: float) -> list[str]:
        """The uids that must be looked at because of these messages, in the order of the
        messages.
        """
        touched: list[str] = []
        for fact in facts:
            track = self.track_of(fact)
            try:
                looked = track is not None and self._intake.observe(track, fact, now_s)
            except StoreError:
                raise
            except Exception as error:
                # A message that cannot be true stops the object that it speaks of, and no other
                # (P7).
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
        except Exception:
            log.exception("drive failed", extra={"uid": uid})
            self._state.queue.add(uid, now_s + self._state.settings.retry_max_s)

    def _pass(self, uid: str, now_s: float) -> None:
        try:
            self._passes.make(uid, now_s)
        except StoreError:
            raise
        except Exception as error:
            # One bad object never stops the others (P7).
            log.exception("pass failed", extra={"uid": uid})
            self._passes.failed(uid, error, now_s)

    def _take_facts(self) -> tuple[list[Message], list[Message]]:
        """So many that no tick makes a person wait: of many objects each needs a pass."""
        settings, owner_of = self._state.settings, self._state.owner_of
        facts = self._state.inbox.facts
        at, uids = 0, set()
        for fact in facts[: settings.messages_per_tick_max]:
            uids.add(fact.uid if isinstance(fact, AssetReplied) else owner_of.get(fact.run))
            if len(uids) > settings.keys_per_tick_max:
                break
            at += 1
        return facts[:at], facts[at:]

    def _take_desired(self) -> None:
        """Which resources were written since the last look, by specs made through the store."""
        self._watched, rows = self._state.store.resources.watch(self._watched)
        for row in rows:
            self._reading.changed_rows[row.uid] = row
            self._state.queue.add(row.uid)
            self._sources.heard(row)

    def _start_over(self, now_s: float) -> None:
        """Nothing of this tick happened: forget it and read the truth back, a little later."""
        self._tries += 1
        wait_s = self._state.settings.retry_initial_s * 2.0 ** min(self._tries, 32)
        self.again_at_s = now_s + min(wait_s, self._state.settings.retry_max_s)
        # What is known of calls goes with the tracks; from here the bounds are waited out anew.
        self._effects.drop_all()
        self._state.started_at_s = now_s
        self._state.events.clear()
        self._records.forget()
        self._sources.forget()
        self.load()
        for uid in self._state.tracks:
            self._state.queue.add(uid)

    def track_of(self, message: Message) -> Track | None:
        """The resource that a message speaks of; None when it is of nobody's run any more."""
        uid = (
            message.uid
            if isinstance(message, AssetReplied)
            else self._state.owner_of.get(message.run)
        )
        return self._state.tracks.get(uid) if uid is not None else None
