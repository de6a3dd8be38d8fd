"""Plays one seed: the specs, the faults, the deaths of the controller, then quiet, then the demand
for peace.

A `Play` outlives the incarnations of the controller. Each incarnation has its own event loop, store
handle, providers and engine; all share the world, the committed rows and the virtual time.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from fleetctl.common.errors import StoreError
from fleetctl.controllers.planning.kind_controller import Params
from fleetctl.engine.decide.suggestions import Search
from fleetctl.engine.engine import Engine, EngineServices
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.stores.sqlite.store import MemoryDatabase, SqliteStore, open_memory_store
from fleetctl.stores.sqlite_errors import DiskFull
from tests.simulation import acts, wandb
from tests.simulation.faults import Crash, CrashAt, Life, draw_crashes
from tests.simulation.hygiene import Complaints, seeded_ids
from tests.simulation.invariants import COMMIT_CHECKS, EFFECT_CHECKS, broken
from tests.simulation.loop import HotLoop, SimClock, Timeline, VirtualLoop
from tests.simulation.models import MODELS
from tests.simulation.politeness import Politeness
from tests.simulation.provider import SimProvider
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import draw
from tests.simulation.scene import Check, Scene
from tests.simulation.snapshot import read
from tests.simulation.world import STRANGER, Box, World

# How often the controller dies at most; now and then it does so again and again.
CRASHES_MAX = (1, 2, 3, 3, 12)

# Chance per commit, while faults last, that the disk is full; most seeds have a good disk.
DISK_FULL_ODDS = (0.0, 0.0, 0.0, 0.02, 0.3)

# A start after a crash comes at once, soon, or after the sandboxes have long ended.
DOWNTIMES_S = (0.0, 0.5, 15.0, 300.0)

# One that did not die but hang, so that another took over, wakes after this and writes on.
WAKES_S = (0.0, 1.0, 40.0)


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may fix; the seed decides the rest. crashes None = as the seed has it."""

    scenario: str = ""
    faults: bool = True
    crashes: tuple[CrashAt, ...] | None = None


@dataclass(slots=True)
class Outcome:
    """`broken` is empty when all invariants held."""

    seed: int
    scenario: str
    provider: str
    broken: list[str] = field(default_factory=list)
    ends: dict[str, object] = field(default_factory=dict)  # liveness.end_state
    digest: int = 0  # of everything that happened, in its order
    crashes: int = 0
    points: dict[str, int] = field(default_factory=dict)  # passed, by sort
    virtual_s: float = 0.0


def simulate(seed: int, options: Options = Options()) -> Outcome:
    """One seed from the first spec to lasting peace. Equal arguments give equal outcomes."""
    with seeded_ids(seed):
        play = Play(seed, draw(seed, only=options.scenario), options)
        with Complaints(play.breach):
            play.run()
    outcome = play.outcome
    outcome.digest = play.world.digest
    outcome.virtual_s = play.timeline.now_s
    return outcome


class Play:
    """The state of one seed that survives crashes. `acts` reads and moves it on."""

    def __init__(self, seed: int, scenario: Scenario, options: Options) -> None:
        self.rng = random.Random(f"play {seed}")
        self.seed, self.scenario, self.options = seed, scenario, options
        self.outcome = Outcome(seed, scenario.name, scenario.provider)
        self.timeline = Timeline()
        self.timeline.epoch_s += scenario.later_s
        self.clock = SimClock(self.timeline)
        faults_end_s = self.rng.uniform(30.0, 400.0) if options.faults else 0.0
        self.world = World(self.timeline, random.Random(f"world {seed}"), faults_end_s=faults_end_s)
        self.wandb = wandb.Service(self.world, random.Random(f"wandb {seed}"))
        self.scene = Scene(self.world, politeness=Politeness(), handed=self.wandb.handed)
        self.progress = acts.Progress()
        self.life = Life(None)
        self.providers: dict[str, SimProvider] = {}
        self._database = MemoryDatabase()
        self._newest: SqliteStore | None = None
        self._crashes = _crashes(self.rng, options)
        self._burying = False
        self._disk_full = self.rng.choice(DISK_FULL_ODDS)
        self._shuffles = self.rng.random() < 0.5
        self.world.on_effect = lambda _name: self._check(EFFECT_CHECKS)
        self.world.on_push = self._push
        self.world.on_stop = self._stopped
        acts.plan_outages(self)

    def run(self) -> None:
        while not self.progress.over and not self.outcome.broken:
            try:
                self._incarnation()
            except Crash:
                self.outcome.crashes += 1
                self._rest()
            except HotLoop as error:
                self.outcome.broken.append(f"C14: the engine waits for something -- {error}")

    # ---- one incarnation

    def _incarnation(self) -> None:
        number = self.outcome.crashes
        life = self.life = Life(self._crashes[number] if number < len(self._crashes) else None)
        self.scene.politeness.new_incarnation()
        loop = VirtualLoop(
            self.timeline,
            on_step=lambda: life.point("step"),
            rng=random.Random(f"loop {self.seed} {number}") if self._shuffles else None,
        )
        try:
            asyncio.set_event_loop(loop)
            store = self._open_store(life)
            loop.run_until_complete(self._controller(store))
        finally:
            life.dead = True
            for sort, passed in life.passed.items():
                self.outcome.points[sort] = self.outcome.points.get(sort, 0) + passed
            # What a dead controller would still do in its cleanup is nobody's fault.
            self._burying = True
            loop.bury()
            self._burying = False
            asyncio.set_event_loop(None)

    def _open_store(self, life: Life) -> SqliteStore:
        # Whoever hangs is not told that another takes over; its epoch alone must stop it.
        self._database.writer = None
        store = open_memory_store(
            self.clock,
            self._database,
            before_commit=lambda: self._committing(life),
            after_commit=lambda: self._committed(store, life),
        )
        self._wake_later(store)
        self.scene.store, self.scene.store_id = store, store.store_id
        found = read(store)
        if found != self.scene.now:
            self.breach(
                "I11: what was committed is there after a crash, and nothing else -- it is not"
            )
        if not self.world.boxes:
            self._plant()
        return store

    def _wake_later(self, store: SqliteStore) -> None:
        """The controller before this one wakes in the middle of this one's life, and writes what it
        knows.
        """
        hung, self._newest = self._newest, store
        if hung is None:
            return

        def wake() -> None:
            with suppress(StoreError), hung.transaction():
                for it in hung.resources.list():
                    hung.resources.put_status(it.uid, it.status, expected_version=it.version)

        delay_s = random.Random(f"hung {self.seed} {self.outcome.crashes}").choice(WAKES_S)
        self.timeline.at(self.timeline.now_s + delay_s, wake)

    async def _controller(self, store: SqliteStore) -> None:
        self.providers = {
            name: SimProvider(
                model,
                self.world,
                self.life,
                store_id=store.store_id,
                notify=lambda run: engine.notify(run),
                politeness=self.scene.politeness,
            )
            for name, model in MODELS.items()
            if name in self.scenario.providers
        }
        engine = Engine(
            store=store,
            providers=self.providers,
            clock=self.clock,
            # So that some of its turns answer several events, as with many live runs.
            settings=EngineSettings(seed=self.seed, few_live=2),
            aside=partial(_a_little_later, self.life),
            secrets=wandb.found_key,
            outside=EngineServices(wandb=self.wandb.connect(self.life)),
        )
        running = asyncio.ensure_future(engine.run())
        acting = asyncio.ensure_future(acts.perform(self, store, engine))
        await asyncio.wait({running, acting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            self.breach(f"C4: the engine ended by itself: {running.exception()!r}")
        engine.stop()
        await running
        acting.result()

    # ---- what happens

    def breach(self, text: str) -> None:
        """An invariant is broken: remember how, and end the play here."""
        if not self.outcome.broken and not self._burying:
            self.outcome.broken.append(text)
        self.life.dead = True
        raise Crash(text)

    def _committing(self, life: Life) -> None:
        if life is not self.life:
            self.breach("I19: who was taken over writes nothing any more -- it does")
        life.point("commit", "before")
        if self.world.chance(self._disk_full):
            raise DiskFull("the disk has no room")

    def _committed(self, store: SqliteStore, life: Life) -> None:
        self.scene.before, self.scene.now = self.scene.now, read(store)
        self._check(COMMIT_CHECKS)
        life.point("commit", "after")

    def _stopped(self, ref: object) -> None:
        self.scene.stops.append(ref)  # type: ignore[arg-type]
        self._check(EFFECT_CHECKS)

    def _check(self, checks: tuple[Check, ...]) -> None:
        for text in broken(self.scene, checks):
            self.breach(text)

    def _push(self, box: Box, run: str) -> None:
        provider = self.providers.get(box.model.name)
        if provider is not None and not self.life.dead:
            provider.push(run)

    def _rest(self) -> None:
        """The controller is down; the world goes on."""
        try:
            self.timeline.advance(self.timeline.now_s + self.rng.choice(DOWNTIMES_S))
        except Crash:
            assert self.outcome.broken, "nothing but a breach stops the world"

    def _plant(self) -> None:
        """A stranger's sandbox, and perhaps one of ours that a lost store has forgotten."""
        model = MODELS[self.scenario.provider]
        self.world.plant(model, sandbox="strangers", owner=STRANGER)
        for number in range(self.scenario.orphans):
            self.world.plant(model, sandbox=f"orphan-{number}", owner=self.scene.store_id)


def _crashes(rng: random.Random, options: Options) -> tuple[CrashAt, ...]:
    drawn = tuple(draw_crashes(rng, crashes_max=rng.choice(CRASHES_MAX)))
    if options.crashes is not None:
        return options.crashes
    return drawn if options.faults else ()


async def _a_little_later(life: Life, search: Search) -> Params | None:
    """In place of a thread, which virtual time knows nothing of."""
    await asyncio.sleep(0.2)
    found = search()
    life.point("suggestion")
    return found
