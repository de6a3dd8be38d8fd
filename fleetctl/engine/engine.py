"""The loop: tick after tick, and between two of them sleep until there is something to look at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from fleetctl.common.clock import Clock
from fleetctl.common.errors import Unavailable
from fleetctl.common.tasks import cancel
from fleetctl.engine.capacity.admission import Admission
from fleetctl.engine.capacity.prices import Market
from fleetctl.engine.capacity.providers import Accounts
from fleetctl.engine.decide.dependencies import Dependencies
from fleetctl.engine.decide.intents import Intents
from fleetctl.engine.decide.load import Reading
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.decide.suggestions import Aside, Suggestions
from fleetctl.engine.execute.executor import Effects
from fleetctl.engine.execute.leftovers import Leftovers
from fleetctl.engine.execute.orphan_sweep import sweep_forever
from fleetctl.engine.execute.rate_limit import RateLimiters
from fleetctl.engine.execute.retention import Retention
from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.kinds.backups.backups import Backups
from fleetctl.engine.kinds.endpoints.charging import Charging
from fleetctl.engine.kinds.endpoints.endpoints import Endpoints, Link
from fleetctl.engine.kinds.endpoints.functions import ServedFunctions
from fleetctl.engine.kinds.endpoints.grants import Grants
from fleetctl.engine.kinds.gitops.sources import Sources as KeptSources
from fleetctl.engine.kinds.notices.delivery import Delivery
from fleetctl.engine.kinds.notices.notices import Notices
from fleetctl.engine.kinds.queues.queues import Queues
from fleetctl.engine.kinds.schedules.schedules import Schedules
from fleetctl.engine.kinds.wandb.talks import Talks
from fleetctl.engine.money.budgets import Budgets
from fleetctl.engine.money.ledger import Charges
from fleetctl.engine.observe.intake import Intake
from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.observe.reach import watch_reach
from fleetctl.engine.observe.records import Records
from fleetctl.engine.observe.replies import Answers
from fleetctl.engine.observe.troubles import Troubles
from fleetctl.engine.observe.watcher import Watcher
from fleetctl.engine.outside import NOTHING, Outside
from fleetctl.engine.shared.boundary import reported
from fleetctl.engine.shared.settings import Settings
from fleetctl.engine.shared.state import State
from fleetctl.engine.sleeping import Sleepers
from fleetctl.engine.tick import Ticks
from fleetctl.gateway.reach.gateway import Gateway
from fleetctl.providers.contract.base import Backend, Reachable, Resolving
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.base import Store
from fleetctl.tracking.sources import Sources
from fleetctl.tracking.track import Track

log = logging.getLogger("fleetctl.engine")

# Of the event loop, from a person's connection to the answer. Each would wait for a tick of its own
# while there is always another object to look at.
STEPS_OF_A_QUESTION = 8

Secrets = Callable[[tuple[str, ...], str], Found]  # of names in a namespace


class Engine:
    """Puts the parts together and keeps them going. One per store; lives on one event loop."""

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
        aside: Aside = asyncio.to_thread,
        outside: Outside = NOTHING,
    ) -> None:
        """aside: does long work of pure functions elsewhere than on the loop."""
        state = self.state = State(
            store=store, providers=providers, clock=clock, settings=settings, sources=sources
        )
        self._helpers: list[asyncio.Future[None]] = []
        self._stopping = False
        self._scan_at_s = state.started_at_s + settings.resync_s
        self.rate_limiters = RateLimiters(store, clock)
        for name, backend in state.providers.items():
            self.rate_limiters.add(name, backend.contract)
        self.sleepers = Sleepers(state)
        self.watcher = Watcher(state, self.rate_limiters)
        self.market = Market(state, accounts=accounts, admit=self._admit)
        self._charges = Charges(state)
        self._budgets = Budgets(state, market=self.market, charges=self._charges)
        self.endpoints = self._endpoints_of(outside.gateway, secrets or _no_secrets)
        self._admission = Admission(state, market=self.market, rate_limiters=self.rate_limiters)
        self.effects = Effects(
            state,
            rate_limiters=self.rate_limiters,
            exceeded=self._admission.exceeded,
            secrets=secrets or _no_secrets,
            join=self.endpoints.join,
        )
        self._leftovers = Leftovers(
            backend=state.providers.get,
            rate_limiter=self.rate_limiters.__getitem__,
            backoff_s=state.backoff_s,
        )
        self.troubles = Troubles(clock=clock, tracks=state.tracks, look=state.queue.add)
        self._suggestions = Suggestions(state, aside=aside)
        self._talks = Talks(
            state,
            connect=outside.wandb,
            secrets=secrets or _no_secrets,
            beat_s=settings.wandb_beat_s,
        )
        self.schedules = Schedules(state, outside.maker)
        self.retention = Retention(state, outside.cleaner)
        self.backups = Backups(state, make=outside.backup, secrets=secrets or _no_secrets)
        self.delivery = Delivery(state, secrets=secrets or _no_secrets, send=outside.send)
        self.notices = Notices(state, written=self.delivery.wake)
        self._queues = Queues(state)
        self.kept = KeptSources(state, outside.keeper)
        self.ticks = self._ticks_of(state)

    def _endpoints_of(self, gateway: Gateway | None, secrets: Secrets) -> Endpoints:
        functions = ServedFunctions(self.state, denied=self._budgets.serving_denied)
        if gateway is None:
            return Endpoints(self.state, secrets=secrets, functions=functions)
        grants = Grants(self.state, gateway, self._budgets)
        charging = Charging(self.state, charges=self._charges, budgets=self._budgets, grants=grants)
        link = Link(gateway, grants, charging)
        return Endpoints(self.state, secrets=secrets, functions=functions, link=link)

    def _ticks_of(self, state: State) -> Ticks:
        """What decides, wired: each part is told what it needs, and none knows the engine."""
        records = Records(state, self._charges)
        reading = Reading(state, look=self.watcher.look)
        answers = Answers(
            state,
            records=records,
            market=self.market,
            troubles=self.troubles,
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
            budgets=self._budgets,
            leftovers=self._leftovers,
            drop_call=self.effects.drop,
            gone=self.kept.moved,
        )
        passes = self._passes_of(state, reading, intents)
        return Ticks(
            state,
            sleepers=self.sleepers,
            reading=reading,
            passes=passes,
            intake=Intake(answers, observations),
            records=records,
            admission=self._admission,
            charges=self._charges,
            budgets=self._budgets,
            notices=self.notices,
            queues=self._queues,
            effects=self.effects,
            sources=self.kept,
            provided=self._provided,
        )

    def _passes_of(self, state: State, reading: Reading, intents: Intents) -> Passes:
        return Passes(
            state,
            reading=reading,
            dependencies=Dependencies(state, read=reading.read),
            intents=intents,
            admission=self._admission,
            market=self.market,
            budgets=self._budgets,
            troubles=self.troubles,
            sleepers=self.sleepers,
            suggestions=self._suggestions,
            talks=self._talks,
            endpoints=self.endpoints,
            schedules=self.schedules,
            notices=self.notices,
            queues=self._queues,
            sources=self.kept,
            provided=self._provided,
        )

    # -- what others call --------------------------------------------------------------------------

    def notify(self, run: str) -> None:
        """A provider says that something about a run changed."""
        self.watcher.look(run)

    def _provided(self) -> None:
        """A Provider object came, changed or went: who starts or waits for room looks again."""
        if not self.market.refresh():
            return
        self.rate_limiters.limit_creates(self.market.declared)
        self._admission.reckon(self.state.clock.now_s())
        for uid, track in self.state.tracks.items():
            if track.work is not None:
                self.state.queue.add(uid)

    def _admit(self, name: str, backend: Backend) -> None:
        """The backend of a declared provider is this from now on. Idempotent."""
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
        """End `run` soon. Work goes on at the providers."""
        self._stopping = True
        self.state.inbox.wake()

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop` is called or the task is cancelled. Raises StoreError when it is final."""
        self.ticks.load()
        recovery = self.state.recovery
        if recovery is not None:
            await recovery.begin()
            self.ticks.load()
            self._help(recovery.go_on)
        self._help(partial(sweep_forever, self.state, self.rate_limiters))
        self._help(self.retention.tend)
        self._help(self.backups.tend)
        self._help(self.delivery.run)
        self._help(self.endpoints.tend)
        self._help(self.endpoints.listen)
        for name in self.state.providers:
            self._watch(name)
        try:
            while not self._stopping:
                self.ticks.make()
                await self._sleep()
        finally:
            helpers, self._helpers = self._helpers, []
            for task in helpers:
                task.cancel()
            await self._suggestions.close()
            await self._talks.close()
            await self.endpoints.close()
            await self.schedules.close()
            await self.kept.close()
            await self.effects.cancel_all()
            await self._leftovers.close()
            await cancel(helpers)

    def _watch(self, provider: str) -> None:
        """Its runs, and where that can be asked, whether its service answers."""
        self._help(partial(self.watcher.run, provider))
        if isinstance(self.state.providers[provider], Reachable):
            self._help(
                partial(
                    watch_reach,
                    provider,
                    partial(self.state.providers.__getitem__, provider),
                    tracks=lambda: list(self.state.tracks.values()),
                    troubles=self.troubles,
                    changed=self.state.inbox.wake,
                )
            )

    def _help(self, work: Callable[[], Awaitable[None]]) -> None:
        self._helpers.append(asyncio.ensure_future(self._forever(work)))

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """A helper that a bug of ours ends begins again: without it nothing is ever seen."""
        while True:
            await reported(work(), what="helper")
            await asyncio.sleep(self.state.settings.retry_max_s)

    async def _sleep(self) -> None:
        """Until a message, a spec, the next due key or the next full scan."""
        state, ticks = self.state, self.ticks
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
        """With many live runs, let a tick answer several events."""
        settings = self.state.settings
        many = max(0, self.state.live_runs() - settings.few_live)
        self.state.inbox.at_capacity = many > 0
        gap_s = min(many * settings.tick_gap_each_s, settings.tick_gap_max_s)
        wait_s = self.ticks.made_at_s + gap_s - self.state.clock.now_s()
        if 0 < wait_s <= gap_s:  # a clock that was set back delays nothing
            await asyncio.sleep(wait_s)

    # -- questions ---------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Nothing is live, nothing is desired that has not been reached, and all is resolved."""
        state = self.state
        busy = any(
            not track.dormant and track.status.get("phase") not in _at_rest(track)
            for track in state.tracks.values()
        )
        busy = busy or self.delivery.waits
        live = bool(state.live_runs() or state.inbox.facts)
        return not busy and not live and self.resolved() and not self.backups.wanted

    def resolved(self) -> bool:
        """Of no start, stop or orphan of ours the end is open."""
        state = self.state
        return (
            not self._leftovers
            and not any(state.unrecorded.values())
            and not any(map(_unresolved, state.providers.values()))
        )


def _at_rest(track: Track) -> tuple[str, ...]:
    """The phases in which an object needs nobody. What makes others by itself does."""
    starts = KINDS[track.resource.kind].starts
    return ("Suspended",) if starts else ("Ready", "Suspended")


def _unresolved(backend: Backend) -> bool:
    return isinstance(backend, Resolving) and backend.unresolved()


async def _serve_others() -> None:
    """Let who asks something be answered between two ticks."""
    for _ in range(STEPS_OF_A_QUESTION):
        await asyncio.sleep(0)


def _no_secrets(names: tuple[str, ...], _namespace: str) -> Found:
    raise Unavailable(f"this engine has no secrets: {', '.join(names)}", reason="SecretMissing")
