"""The loop: runs tick after tick, and sleeps between them until there is work. Beside it the table
of its parts, in their order, and the services that the caller brings.

The code that wires an engine brings the services; where one is missing, its work is not done, as in
most tests. A kind with behavior of its own names its part in its row of specs/kinds/registry.py; a
part that PART_ORDER does not list comes last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import NamedTuple

from fleetctl.common.clock import Clock
from fleetctl.common.errors import Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.engine.capacity.admission import ProviderAdmission
from fleetctl.engine.capacity.price_book import PriceBook, ProviderAccounts
from fleetctl.engine.decide.dependencies import Dependencies
from fleetctl.engine.decide.intents import Intents
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.decide.suggestions import Aside
from fleetctl.engine.decide.work_loader import WorkLoader
from fleetctl.engine.execute.executor import PlanExecutor
from fleetctl.engine.execute.orphan_sweep import Leftovers, sweep_forever
from fleetctl.engine.execute.rate_limit import RateLimiters
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.backups import Make
from fleetctl.engine.kinds.endpoints.endpoints import Endpoints
from fleetctl.engine.kinds.notices import SendNotice
from fleetctl.engine.kinds.schedules import ObjectMaker
from fleetctl.engine.kinds.source_status import SourceKeeper
from fleetctl.engine.kinds.traces import Telemetry
from fleetctl.engine.observe.intake import Intake, ReplyHandler
from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.observe.provider_health import ProviderHealth, watch_reachability
from fleetctl.engine.observe.records import Records
from fleetctl.engine.observe.watcher import RunWatcher
from fleetctl.engine.shared.boundary import run_reported
from fleetctl.engine.shared.engine_state import EngineSettings, EngineState
from fleetctl.engine.shared.part import EnginePart, EngineParts, PartWiring
from fleetctl.engine.sleeping import Sleepers
from fleetctl.engine.tick import Ticks
from fleetctl.gateway.gateway_client import Gateway
from fleetctl.providers.contract.base import Backend, Reachable, Resolving
from fleetctl.retention.cleaner import RetentionCleaner
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.base import Store
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.track import Track
from fleetctl.wandb.calls import WandbConnect

log = logging.getLogger("fleetctl.engine")

# Steps of the event loop from a user's connection to the reply. Each would wait for a tick of its
# own while there is always another object to look at.
STEPS_OF_A_QUESTION = 8

Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]  # of names in a namespace


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class EngineServices:
    """wandb: connects to W&B's service, for sweeps of an account. gateway: of model endpoints.
    maker: stores what schedules request. keeper: fetches and stores the commits of Sources. backup:
    writes one. cleaner: deletes finished work on this machine's disk. send: sends to a sink of
    notices, which wait for an engine that can. traces: takes spans.
    """

    wandb: WandbConnect | None = None
    gateway: Gateway | None = None
    maker: ObjectMaker | None = None
    keeper: SourceKeeper | None = None
    backup: Make | None = None
    cleaner: RetentionCleaner | None = None
    send: SendNotice | None = None
    traces: Telemetry | None = None


NOTHING = EngineServices()


class Engine:
    """Puts the parts together and keeps them going. One per store; lives on one event loop."""

    def __init__(
        self,
        *,
        store: Store,
        providers: Mapping[str, Backend],
        clock: Clock,
        settings: EngineSettings = EngineSettings(),  # noqa: B008 - frozen
        secrets: Secrets | None = None,
        accounts: ProviderAccounts | None = None,
        sources: ManifestSources | None = None,
        aside: Aside = asyncio.to_thread,
        outside: EngineServices = NOTHING,
    ) -> None:
        """aside: runs long work of pure functions elsewhere than on the loop."""
        state = self.state = EngineState(
            store=store,
            providers=providers,
            clock=clock,
            settings=settings,
            sources=sources,
        )
        self._helpers: list[asyncio.Future[None]] = []
        self._stopping = False
        self._scan_at_s = state.started_at_s + settings.resync_s
        self.rate_limiters = RateLimiters(store, clock, state.figures.calls)
        for name, backend in state.providers.items():
            self.rate_limiters.add(name, backend.contract)
        self.sleepers = Sleepers(state)
        self.watcher = RunWatcher(state, self.rate_limiters)
        self.market = PriceBook(state, accounts=accounts, admit=self._admit)
        self._admission = ProviderAdmission(
            state, market=self.market, rate_limiters=self.rate_limiters
        )
        secrets = secrets or _refuse_secrets
        self.parts = build_parts(
            PartWiring(
                state,
                services=outside,
                secrets=secrets,
                aside=aside,
                parts=EngineParts(declared=state.tracks.asset_kinds),
                others=(self.rate_limiters, self.market, self._admission),
            )
        )
        self.effects = PlanExecutor(
            state,
            rate_limiters=self.rate_limiters,
            exceeded=self._admission.exceeded,
            secrets=secrets,
            join=self.parts.get(Endpoints).join,
            parts=self.parts,
        )
        self._leftovers = Leftovers(
            backend=state.providers.get,
            rate_limiter=self.rate_limiters.__getitem__,
            backoff_s=state.backoff_s,
        )
        self.ticks = self._ticks_of(state)

    def _ticks_of(self, state: EngineState) -> Ticks:
        """Wires the deciding parts: each part receives its collaborators, and none knows the
        engine.
        """
        records = Records(state, self.parts)
        reading = WorkLoader(state, look=self.watcher.look)
        answers = ReplyHandler(
            state,
            records=records,
            market=self.market,
            troubles=self.parts.get(ProviderHealth),
            look=self.watcher.look,
        )
        observations = Observations(
            state,
            records=records,
            market=self.market,
            leftovers=self._leftovers,
            look_later=self.watcher.look_later,
        )
        intents = Intents(
            state,
            records=records,
            admission=self._admission,
            market=self.market,
            leftovers=self._leftovers,
            drop_call=self.effects.drop,
            parts=self.parts,
        )
        passes = Passes(
            state,
            reading=reading,
            dependencies=Dependencies(state, read=reading.read),
            intents=intents,
            market=self.market,
            sleepers=self.sleepers,
            parts=self.parts,
        )
        return Ticks(
            state,
            sleepers=self.sleepers,
            reading=reading,
            passes=passes,
            intake=Intake(answers, observations),
            records=records,
            admission=self._admission,
            effects=self.effects,
            parts=self.parts,
        )

    # -- what others call --------------------------------------------------------------------------

    def notify(self, run: str) -> None:
        """Wakes the observation of a run that a provider reports as changed."""
        self.watcher.look(run)

    def _admit(self, name: str, backend: Backend) -> None:
        """Sets the backend of a declared provider from now on. Idempotent."""
        known = self.state.providers.get(name)
        if known is backend:
            return
        self.state.providers[name] = backend
        self.rate_limiters.add(name, backend.contract)
        if known is None:
            self.watcher.add(name)
            if self._helpers:
                self._watch(name)

    def stop(self) -> None:
        """Ends `run` soon. Work goes on at the providers."""
        self._stopping = True
        self.state.inbox.wake()

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until `stop` is called or the task is cancelled. Raises StoreError when it is
        final.
        """
        self.ticks.load()
        recovery = self.state.recovery
        if recovery is not None:
            await recovery.begin()
            self.ticks.load()
            self._help(recovery.go_on)
        self._help(partial(sweep_forever, self.state, self.rate_limiters))
        for part in self.parts:
            for helper in part.list_helpers():
                self._help(helper)
        for name in self.state.providers:
            self._watch(name)
        try:
            while not self._stopping:
                self.ticks.make()
                await self._sleep()
        finally:
            helpers = self._helpers
            self._helpers = []
            for task in helpers:
                task.cancel()
            for part in self.parts:
                await part.close()
            await self.effects.cancel_all()
            await self._leftovers.close()
            await cancel_tasks(helpers)

    def _watch(self, provider: str) -> None:
        """Watches the provider's runs, and, if it has a check, the reachability of its service."""
        self._help(partial(self.watcher.run, provider))
        if isinstance(self.state.providers[provider], Reachable):
            self._help(
                partial(
                    watch_reachability,
                    provider,
                    partial(self.state.providers.__getitem__, provider),
                    tracks=lambda: list(self.state.tracks.values()),
                    health=self.parts.get(ProviderHealth),
                    changed=self.state.inbox.wake,
                )
            )

    def _help(self, work: Callable[[], Awaitable[None]]) -> None:
        self._helpers.append(asyncio.ensure_future(self._run_forever(work)))

    async def _run_forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Restarts a helper that a bug of ours ended: without it no change is ever observed."""
        while True:
            await run_reported(work(), what="helper")
            await asyncio.sleep(self.state.settings.retry_max_s)

    async def _sleep(self) -> None:
        """Sleeps until a message, a spec, the next due key or the next full scan."""
        state = self.state
        ticks = self.ticks
        now_s = state.clock.now_s()
        if state.inbox.facts and now_s >= ticks.again_at_s:
            await _serve_others()
            return
        if now_s >= self._scan_at_s:
            # The slow full scan under the events; it comes in its time, however many come.
            self._scan_at_s = now_s + state.settings.resync_s
            self.sleepers.look(now_s)
        dues_s = (self._scan_at_s, state.queue.next_due_at_s(), self.sleepers.look_at_s)
        until_s = min(at_s for at_s in dues_s if at_s is not None)
        # While the store refuses, the messages wait; they must not keep the loop turning.
        until_s = max(until_s, ticks.again_at_s)
        await state.inbox.wait(max(0.0, until_s - now_s))
        await _serve_others()
        await self._gather_events()
        state.inbox.rest()

    async def _gather_events(self) -> None:
        """Delays the tick when many runs are live, so that it covers several events."""
        settings = self.state.settings
        many = max(0, self.state.live_runs() - settings.few_live)
        self.state.inbox.at_capacity = many > 0
        gap_s = min(many * settings.tick_gap_each_s, settings.tick_gap_max_s)
        wait_s = self.ticks.made_at_s + gap_s - self.state.clock.now_s()
        if 0 < wait_s <= gap_s:  # a clock that was set back causes no delay
            await asyncio.sleep(wait_s)

    # -- questions ---------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Returns true if no run is live, every desired state is reached, and all is resolved."""
        state = self.state
        busy = any(
            not track.dormant and track.status.get("phase") not in _list_rest_phases(track)
            for track in state.tracks.values()
        )
        live = bool(state.live_runs() or state.inbox.facts)
        rests = all(part.is_idle() for part in self.parts)
        return rests and not busy and not live and self.is_resolved()

    def is_resolved(self) -> bool:
        """Returns true if every start, stop and orphan of ours has ended."""
        state = self.state
        return (
            not self._leftovers
            and not any(state.unrecorded.values())
            and not any(map(_is_unresolved, state.providers.values()))
        )


def _list_rest_phases(track: Track) -> tuple[str, ...]:
    """Returns the phases in which an object needs no controller. An object that creates others by
    itself has none.
    """
    starts = KINDS[track.resource.kind].starts
    if starts:
        return ("Suspended",)
    return ("Ready", "Suspended")


def _is_unresolved(backend: Backend) -> bool:
    return isinstance(backend, Resolving) and backend.unresolved()


async def _serve_others() -> None:
    """Yields to other requests on the loop between two ticks."""
    for _ in range(STEPS_OF_A_QUESTION):
        await asyncio.sleep(0)


def _refuse_secrets(names: tuple[str, ...], _namespace: str) -> ResolvedSecrets:
    raise Unavailable(f"this engine has no secrets: {', '.join(names)}", reason="SecretMissing")


class PartRow(NamedTuple):
    part: str  # the kind that it carries out, or module:class
    why: str  # it has this position


PART_ORDER = (
    PartRow("fleetctl.engine.money.ledger:RunCharges", "Budgets count its entries"),
    PartRow("fleetctl.engine.kinds.traces:RunTraces", "Endpoints name the spans of their callers"),
    PartRow("Provider", "capacity is counted before money: a full provider spends none"),
    PartRow("Budget", "accounts are counted before the objects that they pay for"),
    PartRow("Function", "asks Budgets whether its containers are paid for"),
    PartRow("Queue", "puts objects into their order, once all that wake others are known"),
    PartRow(
        "fleetctl.engine.observe.provider_health:ProviderHealth",
        "in any position: no other asks it at once",
    ),
    PartRow(
        "fleetctl.engine.decide.suggestions:Suggestions",
        "in any position: no other asks it at once",
    ),
    PartRow(
        "fleetctl.engine.kinds.wandb.wandb_agents:WandbAgents",
        "in any position: no other asks it at once",
    ),
    PartRow("fleetctl.engine.kinds.notices:NoticeDelivery", "Notifiers wake it"),
    PartRow(
        "fleetctl.engine.execute.retention:Retention", "in any position: no other asks it at once"
    ),
)


def build_parts(wiring: PartWiring) -> EngineParts:
    """Builds all parts in their order, into the parts of the wiring."""
    for path in list_paths():
        module, _, name = path.partition(":")
        sort: type[EnginePart] = getattr(import_module(module), name)
        wiring.parts.add(sort.build(wiring))
    return wiring.parts


def list_paths() -> list[str]:
    """Returns module:class of each part, in their order."""
    first = [KINDS[row.part].part if row.part in KINDS else row.part for row in PART_ORDER]
    of_kinds = [kind.part for kind in KINDS.values() if kind.part]
    return list(dict.fromkeys([*first, *of_kinds]))
