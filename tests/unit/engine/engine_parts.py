"""The parts of an engine, each built from what it says it needs: no Engine anywhere."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from fleetctl.apply.write import commit
from fleetctl.engine.capacity.admission import ProviderAdmission, ProviderObjects
from fleetctl.engine.capacity.price_book import PriceBook
from fleetctl.engine.decide.dependencies import Dependencies
from fleetctl.engine.decide.intents import Intents
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.decide.suggestions import Suggestions
from fleetctl.engine.decide.work_loader import WorkLoader
from fleetctl.engine.execute.executor import PlanExecutor
from fleetctl.engine.execute.orphan_sweep import Leftovers
from fleetctl.engine.execute.rate_limit import RateLimiters
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.endpoints.endpoints import Endpoints
from fleetctl.engine.kinds.endpoints.served_functions import ServedFunctions
from fleetctl.engine.kinds.notices import NoticeOutbox
from fleetctl.engine.kinds.queues import Queues
from fleetctl.engine.kinds.schedules import Schedules
from fleetctl.engine.kinds.source_pass import SourcePasses
from fleetctl.engine.kinds.wandb.wandb_agents import WandbAgents
from fleetctl.engine.money.budgets import Budgets, FunctionObjects
from fleetctl.engine.money.ledger import RunCharges
from fleetctl.engine.observe.intake import ReplyHandler
from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.observe.provider_health import ProviderHealth
from fleetctl.engine.observe.records import Records
from fleetctl.engine.shared.engine_state import EngineSettings, EngineState
from fleetctl.engine.shared.part import EngineParts
from fleetctl.engine.sleeping import Sleepers
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.sqlite.store import open_memory_store
from fleetctl.tracking.track import Track
from tests.unit.engine.fake_world import FakeProvider, ManualClock


class Parts:
    """Each is made when a test asks for it. looked: runs that somebody wants observed; dropped:
    runs whose call somebody wants forgotten.
    """

    def __init__(self, *names: str, settings: EngineSettings | None = None) -> None:
        self.clock = ManualClock()
        self.store = open_memory_store(self.clock)
        self.providers = {name: FakeProvider(self.clock) for name in names or ("local",)}
        self.state = EngineState(
            store=self.store,
            providers=self.providers,
            clock=self.clock,
            settings=settings or EngineSettings(),
        )
        self.looked: list[str] = []
        self.dropped: list[str] = []

    @property
    def local(self) -> FakeProvider:
        return self.providers["local"]

    @cached_property
    def rate_limiters(self) -> RateLimiters:
        made = RateLimiters(self.store, self.clock, {})
        for name, provider in self.providers.items():
            made.add(name, provider.contract)
        return made

    @cached_property
    def kept(self) -> SourcePasses:
        return SourcePasses(self.state, None)

    @cached_property
    def market(self) -> PriceBook:
        return PriceBook(self.state, accounts=None, admit=lambda name, backend: None)

    @cached_property
    def admission(self) -> ProviderAdmission:
        return ProviderAdmission(self.state, market=self.market, rate_limiters=self.rate_limiters)

    @cached_property
    def charges(self) -> RunCharges:
        return RunCharges(self.state)

    @cached_property
    def budgets(self) -> Budgets:
        return Budgets(self.state, market=self.market, charges=self.charges)

    @cached_property
    def records(self) -> Records:
        return Records(self.state, EngineParts([self.charges]))

    @cached_property
    def reading(self) -> WorkLoader:
        return WorkLoader(self.state, look=self.looked.append)

    @cached_property
    def troubles(self) -> ProviderHealth:
        return ProviderHealth(self.state)

    @cached_property
    def leftovers(self) -> Leftovers:
        return Leftovers(
            backend=self.state.providers.get,
            rate_limiter=self.rate_limiters.__getitem__,
            backoff_s=self.state.backoff_s,
        )

    @cached_property
    def answers(self) -> ReplyHandler:
        return ReplyHandler(
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
            leftovers=self.leftovers,
            drop_call=self.dropped.append,
            parts=self.parts,
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
            market=self.market,
            sleepers=self.sleepers,
            parts=self.parts,
        )

    @cached_property
    def parts(self) -> EngineParts:
        """In the order of the product's table, as far as they are here."""
        suggestions = Suggestions(self.state, aside=asyncio.to_thread)
        agents = WandbAgents(
            self.state, connect=None, secrets=lambda names, within: ResolvedSecrets(), beat_s=1
        )
        return EngineParts(
            [
                self.charges,
                self.provider_objects,
                self.budgets,
                FunctionObjects(self.state, self.budgets),
                self.queues,
                self.troubles,
                suggestions,
                agents,
                self.notices,
                Schedules(self.state, None),
                self.kept,
                self.endpoints,
            ]
        )

    @cached_property
    def provider_objects(self) -> ProviderObjects:
        return ProviderObjects(
            self.state,
            market=self.market,
            admission=self.admission,
            rate_limiters=self.rate_limiters,
        )

    @cached_property
    def notices(self) -> NoticeOutbox:
        return NoticeOutbox(self.state, written=lambda: None)

    @cached_property
    def queues(self) -> Queues:
        return Queues(self.state)

    @cached_property
    def endpoints(self) -> Endpoints:
        functions = ServedFunctions(self.state, denied=lambda track: None)
        return Endpoints(
            self.state, secrets=lambda names, namespace: ResolvedSecrets(), functions=functions
        )

    @cached_property
    def effects(self) -> PlanExecutor:
        return PlanExecutor(
            self.state,
            rate_limiters=self.rate_limiters,
            exceeded=self.admission.exceeded,
            secrets=lambda names, namespace: ResolvedSecrets(),
            join=self.endpoints.join,
            parts=EngineParts(),
        )

    # -- what a test says --------------------------------------------------------------------------

    def desired(self, kind: str, name: str, spec: dict[str, Any], **labels: str) -> str:
        """Stored as an apply does it; its uid."""
        checked = KINDS[kind].spec.model_validate(spec)
        about = Metadata.model_validate({"name": name, "labels": labels})
        manifest = Manifest(kind, name, about, checked, "test.yaml", 1)
        (done,) = commit.apply_manifests(self.store, [manifest], self.clock.now_s())
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
            for part in self.parts:
                part.begin_tick(self.clock.now_s())
            self.passes.make(uid, self.clock.now_s())
            self.records.write()
