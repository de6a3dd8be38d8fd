"""A provider with a ground truth that a test scripts, and an engine on a clock that a test sets.

Nothing waits for real time: a test says what happens, `settle` lets the engine take it in. Used by
the tests of the engine beside this file.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.apply.write import commit
from fleetctl.apply.write.scheduled import ScheduleMaker
from fleetctl.common.errors import StoreError, Unavailable
from fleetctl.controllers.model import (
    Alive,
    Ended,
    Gone,
    GpuUsage,
    Metric,
    Node,
    Observation,
    Resource,
    Run,
)
from fleetctl.controllers.planning.kind_controller import Params
from fleetctl.engine.decide.suggestions import Search
from fleetctl.engine.engine import Engine, EngineServices
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.notices import NoticeDelivery, SendNotice
from fleetctl.engine.kinds.source_pass import SourcePasses
from fleetctl.engine.kinds.source_status import SourceKeeper
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.gateway.gateway_client import Gateway
from fleetctl.manifest import Manifest
from fleetctl.providers.contract.base import (
    EndpointAccess,
    FunctionAsset,
    LogChunk,
    Owned,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.sqlite.store import MemoryDatabase, SqliteStore, open_memory_store
from fleetctl.tracking.manifest_sources import ManifestSources

CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=True,
    strong_get=True,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=1e9,
    calls_at_once=1_000,
    call_deadline_s=1e6,
    default_parallelism=4,
    poll_s=1e6,
    functions=True,
)
SECOND_LOOK_S = EngineSettings().second_look_s  # until what was refused is asked for again
ROUNDS = 30  # of the event loop: more than any chain of calls and messages is long


class ManualClock:
    def __init__(self, now_s: float = 1_000.0) -> None:
        self.time_s = now_s

    def now_s(self) -> float:
        return self.time_s


@dataclass(slots=True)
class Box:
    """A sandbox and the last work in it."""

    sandbox: str
    uid: str
    created_at_s: float
    alive: bool = True
    working: str = ""  # the run that works in it now


@dataclass
class FakeProvider:
    """script[verb]: what the next calls do instead; an exception, or an awaitable maker."""

    clock: ManualClock
    notify: Callable[[str], None] = lambda run: None
    contract: Contract = CONTRACT
    boxes: dict[str, Box] = field(default_factory=dict)
    orders: dict[str, RunRequest] = field(default_factory=dict)  # what was begun, in this order
    ends: dict[str, Ended] = field(default_factory=dict)
    metrics: dict[str, list[Metric]] = field(default_factory=lambda: defaultdict(list))
    volumes: set[str] = field(default_factory=set)
    functions: dict[str, FunctionAsset] = field(default_factory=dict)
    freed: list[tuple[str, bool]] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    graces: dict[str, float] = field(default_factory=dict)  # run -> seconds that it was last given
    script: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    price: float | None = 0.0  # USD a second
    gpu_prices: dict[str, float] = field(default_factory=dict)  # beside it, by `NAME:COUNT`
    gpus: tuple[str, ...] = ()  # what the driver in each sandbox tells
    nodes: dict[str, tuple[Node, ...]] = field(default_factory=dict)  # of runs that have several
    usage: GpuUsage | None = None  # of the GPUs of runs
    stragglers: tuple[str, ...] = ()  # sentences about their nodes
    begun_bytes: int = 0  # of a journal that tells nothing but its beginning
    relayed: dict[str, str] = field(default_factory=dict)  # run -> where the gateway listens
    taken: str = ""  # what source.path held when it was taken
    lacking: str = ""  # why no template can ever run here
    deaf: bool = False  # stops are taken and not carried out
    denied: set[str] = field(default_factory=set)  # runs that a look says are gone, though alive
    quota: int | None = None  # sandboxes that may live at once
    asked: int = 0  # starts
    requests: dict[str, RunRequest] = field(
        default_factory=dict
    )  # the newest of each, begun or not

    # -- what a test says --------------------------------------------------------------------------

    def working(self) -> list[int]:
        return sorted(self.orders[box.working].index for box in self.boxes.values() if box.working)

    def run(self, index: int, of: str = "") -> str:
        """The run of this index that was begun last, of a resource such as `batchjob/a` or any; one
        that works goes before.
        """
        works = {box.working for box in self.boxes.values()}
        found = [
            name
            for name, order in self.orders.items()
            if order.index == index and of in ("", order.resource)
        ]
        return next((name for name in reversed(found) if name in works), found[-1])

    def finish(self, index: int, *, of: str = "", ok: bool = True, **changes: Any) -> None:
        """The work of `index` is over."""
        name = self.run(index, of)
        order = self.orders[name]
        box = self.boxes[order.sandbox]
        assert box.working == name, f"{name} does not work"
        box.working = ""
        box.alive = ok and order.reusable
        end = Ended(
            gpus=self.gpus,
            run=name,
            handle=f"h-{name}",
            started_at_s=box.created_at_s,
            ended_at_s=self.clock.now_s(),
            ok=ok,
            infrastructure=False,
            reason="Completed" if ok else "ExitCode:1",
            message="",
            exit_code=0 if ok else 1,
            journal_offset=10,
            result="{}" if ok else None,
            sandbox_open=box.alive,
        )
        self.ends[name] = replace(end, **changes)
        self.notify(name)

    # -- the provider ------------------------------------------------------------------------------

    async def start(self, order: RunRequest) -> str:
        self.asked += 1
        self.requests[order.run] = order
        await self._scripted("start")
        self._count(order)
        if self.contract.two_phase and not order.handle:
            self.boxes.setdefault(order.run, Box(order.run, order.uid, self.clock.now_s()))
            return f"h-{order.run}"
        if order.run not in self.orders:
            if order.sandbox == order.run:
                made = Box(order.run, order.uid, self.clock.now_s())
                self.boxes.setdefault(order.run, made)
            assert self.boxes[order.sandbox].alive and not self.boxes[order.sandbox].working
            self.orders[order.run] = order
            self.boxes[order.sandbox].working = order.run
        return f"h-{order.run}"

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        await self._scripted("observe")
        return [self._look(ref) for ref in runs]

    def _look(self, ref: RunRef) -> Observation:
        order = self.orders.get(ref.run)
        if order is None or ref.run in self.denied:
            return Gone(ref.run, self.clock.now_s())
        if ref.run in self.ends:
            end = self.ends[ref.run]
            return replace(end, sandbox_open=self.boxes[order.sandbox].alive)
        if not self.boxes[order.sandbox].alive:
            return Gone(ref.run, self.clock.now_s())
        fresh = tuple(self.metrics[ref.run][ref.journal_offset :])
        offset = ref.journal_offset + len(fresh)
        offset = max(offset, self.begun_bytes)
        begun_at_s = self.boxes[order.sandbox].created_at_s
        nodes = self.nodes.get(ref.run, ())
        return Alive(
            ref.run,
            f"h-{ref.run}",
            begun_at_s,
            offset,
            fresh,
            gpus=self.gpus,
            nodes=nodes,
            usage=self.usage,
            stragglers=self.stragglers,
        )

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        await self._scripted("stop")
        self.stops.append(ref.run)
        self.graces[ref.run] = grace_s
        box = self.boxes.get(ref.sandbox)
        if box is not None and not self.deaf:
            box.alive, box.working = False, ""

    async def owned(self) -> Sequence[Owned]:
        await self._scripted("owned")
        alive = [box for box in self.boxes.values() if box.alive]
        return [Owned(box.sandbox, f"h-{box.sandbox}", box.created_at_s) for box in alive]

    async def logs(
        self, ref: RunRef, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        yield LogChunk(b"", offset, eof=True)

    async def ensure_volume(self, name: str) -> None:
        await self._scripted("ensure_volume")
        self.volumes.add(name)

    async def remove_volume(self, name: str) -> None:
        await self._scripted("remove_volume")
        self.volumes.discard(name)

    async def ensure_function(self, asset: FunctionAsset) -> None:
        await self._scripted("ensure_function")
        self.functions[asset.order.name] = asset

    async def remove_function(self, name: str) -> None:
        await self._scripted("remove_function")
        self.functions.pop(name, None)

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        await self._scripted("remove_scratch")
        self.freed.append((uid, keep_logs))

    def revision(self, uid: str, template: Template, template_hash: str) -> str:
        return self.taken

    def usd_per_s(self, template: Template) -> float | None:
        gpu = template.resources.gpu
        if self.price is None or gpu is None:
            return self.price
        return self.price + max(self.gpu_prices.get(str(it), 0.0) for it in gpu.each)

    def relay(self, ref: RunRef, access: EndpointAccess) -> None:
        self.relayed[ref.run] = access.base_url

    def lacks(self, template: Template) -> str:
        return self.lacking

    async def close(self) -> None:
        self.boxes.clear()

    def _count(self, order: RunRequest) -> None:
        alive = sum(box.alive for box in self.boxes.values())
        if self.quota is not None and order.run not in self.boxes and alive >= self.quota:
            text = "Total CPU limit exceeded"
            raise Unavailable(text, reason="Quota", retry_after_s=2.0, account=True)

    async def _scripted(self, verb: str) -> None:
        """An exception is raised; `HANG` never returns."""
        if not self.script[verb]:
            return
        step = self.script[verb].pop(0)
        if step is HANG:
            await asyncio.get_running_loop().create_future()
        elif step is not None:
            raise step


HANG = object()


class Fleet:
    """A store, an engine and its providers. `crash` is kill -9 and a restart."""

    def __init__(
        self,
        names: Sequence[str] = ("local",),
        *,
        contract: Contract = CONTRACT,
        settings: EngineSettings = EngineSettings(),  # noqa: B008 - frozen
        secrets: Callable[[tuple[str, ...], str], ResolvedSecrets] | None = None,
        gateway: Gateway | None = None,
        send: SendNotice | None = None,
        keeper: Callable[[SqliteStore], SourceKeeper] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.database = MemoryDatabase()
        self.settings = settings
        self.secrets, self.gateway, self.send = secrets, gateway, send
        self.keeper = keeper
        self.providers = {name: FakeProvider(self.clock, contract=contract) for name in names}
        self.fail_commits = 0
        self.works: list[object] = []  # what becomes of long work: HANG, or an error
        self.worked = 0
        self.helpers: list[asyncio.Task[None]] = []
        self.store, self.engine = self._begin()

    @property
    def local(self) -> FakeProvider:
        return self.providers["local"]

    async def __aenter__(self) -> Fleet:
        self._watch()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()
        self.store.close()

    async def crash(self) -> None:
        """Nothing that was under way is heard of again."""
        await self._end()
        self.store, self.engine = self._begin()
        self._watch()

    def use_sources(self, sources: ManifestSources) -> None:
        self.engine.state.sources = self.maker.sources = sources

    async def settle(self) -> None:
        """Turns until nothing moves any more at this time."""
        self.engine.parts.get(NoticeDelivery).wake()  # the clock may have moved
        for _ in range(ROUNDS):
            self.engine.ticks.make()
            for _ in range(3):
                await asyncio.sleep(0)

    async def later(self, seconds: float) -> None:
        self.clock.time_s += seconds
        await self.settle()

    # -- specs ------------------------------------------------------------------------------------

    async def apply(
        self,
        kind: str,
        name: str,
        spec: Mapping[str, Any],
        *,
        namespace: str = "default",
        **labels: str,
    ) -> None:
        checked = KINDS[kind].spec.model_validate(spec)
        about = Metadata.model_validate({"name": name, "labels": labels, "namespace": namespace})
        manifest = Manifest(kind, name, about, checked, "test.yaml", 1)
        commit.apply_manifests(self.store, [manifest], self.clock.now_s())
        await self.settle()

    async def delete(self, kind: str, name: str, *, namespace: str = "default") -> None:
        commit.delete_object(self.store, kind, name, self.clock.now_s(), namespace=namespace)
        await self.settle()

    def spoil(self, name: str, spec: str) -> None:
        """Write a spec that this version cannot read, as a newer one would have."""
        row = self.row(name)
        with self.store.transaction():
            changed = replace(row, spec=spec, generation=row.generation + 1)
            self.store.resources.put(changed, expected_version=row.version)

    # -- what is there -----------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(row.name for row in self.store.resources.list())

    def row(self, name: str) -> Resource:
        return [row for row in self.store.resources.list() if row.name == name][-1]

    def status(self, name: str) -> dict[str, Any]:
        text = self.row(name).status
        return dict(json.loads(text)) if text else {}

    def runs(self, name: str) -> list[Run]:
        return [run for run, _ in self.store.runs.of(self.row(name).uid)]

    # -- helpers -----------------------------------------------------------------------------------

    def _begin(self) -> tuple[SqliteStore, Engine]:
        store = open_memory_store(self.clock, self.database, before_commit=self._before_commit)
        self.maker = ScheduleMaker(store, self.providers)
        engine = Engine(
            store=store,
            providers=self.providers,
            clock=self.clock,
            settings=self.settings,
            secrets=self.secrets,
            aside=self.aside,
            outside=EngineServices(
                gateway=self.gateway,
                maker=self.maker,
                send=self.send,
                keeper=self.keeper(store) if self.keeper is not None else None,
            ),
        )
        for provider in self.providers.values():
            provider.notify = engine.notify
        engine.ticks.load()
        return store, engine

    async def aside(self, search: Search) -> Params | None:
        """In place of a thread: at once, or as a test says by `works`."""
        step = self.works.pop(0) if self.works else None
        if step is HANG:
            await asyncio.get_running_loop().create_future()
        if isinstance(step, Exception):
            raise step
        self.worked += 1
        return search()

    def _before_commit(self) -> None:
        if self.fail_commits:
            self.fail_commits -= 1
            raise StoreError("the disk is full")

    def _watch(self) -> None:
        self.helpers = [
            asyncio.ensure_future(self.engine.watcher.run(name)) for name in self.providers
        ]
        self.helpers.append(asyncio.ensure_future(self.engine.parts.get(NoticeDelivery).run()))

    async def _end(self) -> None:
        for task in self.helpers:
            task.cancel()
        await self.engine.effects.cancel_all()
        await self.engine.parts.get(SourcePasses).close()
        await asyncio.gather(*self.helpers, return_exceptions=True)


def tasks(count: int, **fields: Any) -> dict[str, Any]:
    """The spec of a BatchJob of so many Python tasks."""
    return {"template": {"python": "SUBMIT(ok=True)"}, "completions": count, **fields}
