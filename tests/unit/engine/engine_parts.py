"""The parts of an engine, each built from what it says it needs: no Engine anywhere."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from fleetctl.apply.write import commit
from fleetctl.engine.capacity.admission import Admission
from fleetctl.engine.capacity.prices import Market
from fleetctl.engine.decide.dependencies import Dependencies
from fleetctl.engine.decide.intents import Intents
from fleetctl.engine.decide.load import Reading
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.decide.suggestions import Suggestions
from fleetctl.engine.execute.executor import Effects
from fleetctl.engine.execute.leftovers import Leftovers
from fleetctl.engine.execute.rate_limit import RateLimiters
from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.kinds.endpoints.endpoints import Endpoints
from fleetctl.engine.kinds.endpoints.functions import ServedFunctions
from fleetctl.engine.kinds.gitops.sources import Sources
from fleetctl.engine.kinds.notices.notices import Notices
from fleetctl.engine.kinds.queues.queues import Queues
from fleetctl.engine.kinds.schedules.schedules import Schedules
from fleetctl.engine.kinds.wandb.talks import Talks
from fleetctl.engine.money.budgets import Budgets
from fleetctl.engine.money.ledger import Charges
from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.observe.records import Records
from fleetctl.engine.observe.replies import Answers
from fleetctl.engine.observe.troubles import Troubles
from fleetctl.engine.shared.settings import Settings
from fleetctl.engine.shared.state import State
from fleetctl.engine.sleeping import Sleepers
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.sqlite.store import open_memory_store
from fleetctl.tracking.track import Track
from tests.unit.engine.fake_world import FakeProvider, ManualClock


class Parts:
    """Each is made when a test asks for it. looked: runs that somebody wants observed; dropped:
    runs whose call somebody wants forgotten; provided: how often a Provider object was told of.
    """

    def __init__(self, *names: str, settings: Settings | None = None) -> None:
        self.clock = ManualClock()
        self.store = open_memory_store(self.clock)
        self.providers = {name: FakeProvider(self.clock) for name in names or ("local",)}
        self.state = State(
            store=self.store,
            providers=self.providers,
            clock=self.clock,
            settings=settings or Settings(),
        )
        self.looked: list[str] = []
        self.dropped: list[str] = []
        self.provided = 0

    @property
    def local(self) -> FakeProvider:
        return self.providers["local"]

    @cached_property
    def rate_limiters(self) -> RateLimiters:
        made = RateLimiters(self.store, self.clock)
        for name, provider in self.providers.items():
            made.add(name, provider.contract)
        return made

    @cached_property
    def kept(self) -> Sources:
        return Sources(self.state, None)

    @cached_property
    def market(self) -> Market:
        return Market(self.state, accounts=None, admit=lambda name, backend: None)

    @cached_property
    def admission(self) -> Admission:
        return Admission(self.state, market=self.market, rate_limiters=self.rate_limiters)

    @cached_property
    def charges(self) -> Charges:
        return Charges(self.state)

    @cached_property
    def budgets(self) -> Budgets:
        return Budgets(self.state, market=self.market, charges=self.charges)

    @cached_property
    def records(self) -> Records:
        return Records(self.state, self.charges)

    @cached_property
    def reading(self) -> Reading:
        return Reading(self.state, look=self.looked.append)

    @cached_property
    def troubles(self) -> Troubles:
        state = self.state
        return Troubles(clock=self.clock, tracks=state.tracks, look=state.queue.add)

    @cached_property
    def leftovers(self) -> Leftovers:
        return Leftovers(
            backend=self.state.providers.get,
            rate_limiter=self.rate_limiters.__getitem__,
            backoff_s=self.state.backoff_s,
        )

    @cached_property
    def answers(self) -> Answers:
        return Answers(
            self.state,
            records=self.records,
            market=self.market,
            troubles=self.troubles,
            look=self.looked.append,
        )

    @cached_property
    def observations(self) -> Observations:
        return Observations(
            self.state,
            records=self.records,
            market=self.market,
            leftovers=self.leftovers,
            look_later=lambda run, at_s: self.looked.append(run),
        )

    @cached_property
    def intents(self) -> Intents:
        return Intents(
            self.state,
            records=self.records,
            admission=self.admission,
            market=self.market,
            budgets=self.budgets,
            leftovers=self.leftovers,
            drop_call=self.dropped.append,
            gone=lambda row: None,
        )

    @cached_property
    def sleepers(self) -> Sleepers:
        return Sleepers(self.state)

    @cached_property
    def passes(self) -> Passes:
        return Passes(
            self.state,
            reading=self.reading,
            dependencies=Dependencies(self.state, read=self.reading.read),
            intents=self.intents,
            admission=self.admission,
            market=self.market,
            budgets=self.budgets,
            troubles=self.troubles,
            sleepers=self.sleepers,
            suggestions=Suggestions(self.state, aside=asyncio.to_thread),
            talks=Talks(self.state, connect=None, secrets=lambda names, within: Found(), beat_s=1),
            endpoints=self.endpoints,
            schedules=Schedules(self.state, None),
            notices=self.notices,
            queues=self.queues,
            sources=self.kept,
            provided=self._provide,
        )

    @cached_property
    def notices(self) -> Notices:
        return Notices(self.state, written=lambda: None)

    @cached_property
    def queues(self) -> Queues:
        return Queues(self.state)

    @cached_property
    def endpoints(self) -> Endpoints:
        functions = ServedFunctions(self.state, denied=lambda track: None)
        return Endpoints(self.state, secrets=lambda names, namespace: Found(), functions=functions)

    @cached_property
    def effects(self) -> Effects:
        return Effects(
            self.state,
            rate_limiters=self.rate_limiters,
            exceeded=self.admission.exceeded,
            secrets=lambda names, namespace: Found(),
            join=self.endpoints.join,
        )

    # -- what a test says --------------------------------------------------------------------------

    def desired(self, kind: str, name: str, spec: dict[str, Any], **labels: str) -> str:
        """Stored as an apply does it; its uid."""
        checked = KINDS[kind].spec.model_validate(spec)
        about = Metadata.model_validate({"name": name, "labels": labels})
        manifest = Manifest(kind, name, about, checked, "test.yaml", 1)
        (done,) = commit.apply(self.store, [manifest], self.clock.now_s())
        return done.uid

    def track(self, uid: str) -> Track:
        """Of a stored object, read as a pass reads it."""
        found = self.reading.fresh_track(uid)
        assert found is not None
        self.reading.read(found)
        return found

    def decide(self, uid: str) -> None:
        """One pass over it, durable."""
        with self.store.transaction():
            self.admission.count(self.clock.now_s())
            self.budgets.count(self.clock.now_s())
            self.passes.make(uid, self.clock.now_s())
            self.records.write()

    def _provide(self) -> None:
        self.provided += 1
        self.market.refresh()
