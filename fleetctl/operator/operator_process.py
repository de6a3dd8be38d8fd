"""The operator process: waits for the lease, opens the store, runs the engine and the mirror, and
writes only while it leads.

Decisions are made by its parts, which are the controller's own (daemon/serve.py); so is its
socket, so that `kubectl exec` into the leader's pod has every command.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import StoreError
from fleetctl.common.event_loop import cancel_tasks, loop_factory
from fleetctl.daemon.adopt import OrphanAdopter
from fleetctl.daemon.api import ControllerApi
from fleetctl.daemon.background_work import engine_settings, sweep_forever
from fleetctl.daemon.receive import ManifestReceiver
from fleetctl.daemon.serve import (
    ControllerSocket,
    calm_collector,
    engine_of,
    forecast_of,
    log_to_stderr,
    start_recovery,
)
from fleetctl.daemon.verbs import RequestVerbs
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.engine.engine import Engine
from fleetctl.engine.execute.retention import Retention
from fleetctl.engine.execute.secrets import AllowList, Names, SecretValues
from fleetctl.engine.shared.engine_state import EngineState
from fleetctl.kubernetes.connection import ApiConnection, connect_cluster
from fleetctl.operator.cluster_requests import ClusterRequests
from fleetctl.operator.elector import DURATION_S, Elector, times_of
from fleetctl.operator.metrics import (
    METRICS,
    ProbePage,
    ProbePages,
    RequestCounter,
    answer_probes,
    metrics_text,
    ready_page,
)
from fleetctl.operator.mirror.applier import Applier
from fleetctl.operator.mirror.resource_mirror import ResourceMirror
from fleetctl.providers.paths import note_cluster
from fleetctl.specs.builtin import DEFAULT_PROVIDER, SORTS
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.stores.base import Store
from fleetctl.wiring.account_registry import AccountRegistry, open_store

log = logging.getLogger("fleetctl.operator")

STORE_AGAIN_S = 0.5  # the process before holds it for a moment longer than the lease
EXIT_OK = 0
EXIT_LOST = 1


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """Options of the operator.

    watch: the one namespace whose objects are looked at; empty: all namespaces. lease_namespace:
    namespace of the lease; empty: that of this process. lease_s: how long no other process leads
    after the last sign of life of a leader. health_port: 0 = no probes. local_means: the provider
    for work with provider `local`; by default this container. allow_env, allow_provider_secrets: as
    in an AllowList.
    """

    context: str = ""
    kubeconfig: str = ""
    watch: str = ""
    lease: str = "fleetctl-operator"
    lease_namespace: str = ""
    lease_s: int = DURATION_S
    health_port: int = 0
    local_means: str = DEFAULT_PROVIDER
    allow_env: Names = field(default_factory=dict)
    allow_provider_secrets: Names = field(default_factory=dict)


def run_operator(home: Path, options: OperatorOptions) -> int:
    """Runs until stopped, or until the lease is lost. Returns the exit code.

    Raises Refused for a cluster that the kubeconfig cannot reach, and StoreError.
    """
    log_to_stderr()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run_until_stopped(home, options))


async def _run_until_stopped(home: Path, options: OperatorOptions) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connection = await connect_cluster(context=options.context, kubeconfig=options.kubeconfig)
    try:
        return await run(home, options, connection, stop)
    finally:
        await connection.close()


async def run(
    home: Path,
    options: OperatorOptions,
    connection: ApiConnection,
    stop: asyncio.Event,
) -> int:
    """Runs the operator on an open connection until `stop` is set."""
    elector = Elector(
        connection,
        namespace=options.lease_namespace or connection.namespace,
        name=options.lease,
        times=times_of(options.lease_s),
        me=f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}",
    )
    replica = OperatorReplica(elector)
    connection.on_request = replica.requests.note
    port = options.health_port
    health = await answer_probes(port, replica.pages()) if port else None
    helpers = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(elector.acquire())]
    try:
        await asyncio.wait(helpers, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return EXIT_OK
        helpers[1].result()
        helpers.append(asyncio.ensure_future(elector.renew()))
        return await _run_as_leader(
            home,
            options,
            connection,
            replica,
            stop,
        )
    finally:
        await cancel_tasks(helpers)
        if health is not None:
            health.close()


class OperatorReplica:
    """One process, as its probes see it. engine, mirror: set while it leads."""

    def __init__(self, elector: Elector) -> None:
        self.elector, self.requests = elector, RequestCounter()
        self.state: EngineState | None = None
        self.mirror: ResourceMirror | None = None

    def pages(self) -> ProbePages:
        return {
            "/healthz": lambda: ProbePage(200, "ok"),
            "/readyz": self._ready,
            "/metrics": lambda: ProbePage(200, self._metrics(), METRICS),
        }

    def _ready(self) -> ProbePage:
        """Reports readiness; an operator that waits for the lease is ready."""
        if not self.elector.leads():
            return ProbePage(200, "ok: waits for the lease")
        if self.mirror is None or not self.mirror.listed:
            return ProbePage(503, "not ready: the store is opened and the kinds are listed\n")
        return ready_page(self.mirror.kinds.problems())

    def _metrics(self) -> str:
        leads = self.elector.leads()
        return metrics_text(
            self.requests,
            leads=leads,
            state=self.state,
            mirror=self.mirror,
        )


async def _run_as_leader(
    home: Path,
    options: OperatorOptions,
    connection: ApiConnection,
    replica: OperatorReplica,
    stop: asyncio.Event,
) -> int:
    elector = replica.elector
    store = await _open_store(home, elector)
    if store is None:
        return EXIT_LOST
    try:
        await _run_engine(
            home,
            options,
            connection,
            replica,
            stop,
            store,
        )
    except LeaseLost:
        log.warning("ends, because another operator may lead")
    finally:
        store.close()
    lost = not stop.is_set() or not elector.leads()
    await elector.release()
    if lost:
        return EXIT_LOST
    return EXIT_OK


async def _open_store(home: Path, elector: Elector) -> Store | None:
    """Opens the store once the process that led before has closed it; None: the lease was lost."""
    while elector.leads():
        try:
            return open_store(home, SystemClock())
        except StoreError as error:
            if "one controller at a time" not in str(error):
                raise
            log.info("the store is held", extra={"error": str(error)})
        await asyncio.sleep(STORE_AGAIN_S)
    return None


async def _run_engine(
    home: Path,
    options: OperatorOptions,
    connection: ApiConnection,
    replica: OperatorReplica,
    stop: asyncio.Event,
    opened: Store,
) -> None:
    elector = replica.elector
    store = fence_store(opened, elector.leads)
    allowed = AllowList(
        options.allow_env, options.allow_provider_secrets, partial(_credential_variables, store)
    )
    note_cluster(home)
    values = SecretValues(store, os.environ, allowed=allowed)
    settings = engine_settings()
    engine, accounts = engine_of(home, store, settings, values, programs=False)
    forecaster = partial(forecast_of, home, engine.state.providers)
    adopter = OrphanAdopter(engine.state, engine.market, accounts.orphans)
    start_recovery(home, engine, accounts)
    receiver = ManifestReceiver(engine.state, engine.market, values, forecaster)
    applier = Applier(receiver, options.local_means)
    verbs = RequestVerbs(engine.state, adopter)
    mirror = ResourceMirror(
        connection,
        state=engine.state,
        applier=applier,
        verbs=verbs,
        leads=elector.leads,
        namespace=options.watch,
    )
    through = ClusterRequests(
        connection,
        store,
        receiver=receiver,
        verbs=verbs,
        mirror=mirror,
        applier=applier,
        watch=options.watch,
    )
    api = ControllerApi(
        engine.state,
        engine.market,
        values,
        shutdown=stop.set,
        forecaster=forecaster,
        adopter=adopter,
        retention=engine.parts.get(Retention),
        replaced=through.handlers(),
    )
    door = ControllerSocket(home, api)
    await door.open()
    replica.state = engine.state
    replica.mirror = mirror
    helping = (
        door.keep_open(),
        sweep_forever(home, every_s=settings.sweep_s),
        mirror.run(),
        _call_after(stop, engine.stop),
        _call_after(elector.lost, engine.stop),
    )
    await _run_with_helpers(engine, helping, door, accounts)


async def _run_with_helpers(
    engine: Engine,
    helping: Iterable[Coroutine[Any, Any, None]],
    door: ControllerSocket,
    accounts: AccountRegistry,
) -> None:
    """Runs the engine until it is stopped, beside its helpers; then closes all of them."""
    helpers = [asyncio.ensure_future(it) for it in helping]
    calm_collector()
    try:
        await engine.run()
    finally:
        await cancel_tasks(helpers)
        door.close()
        await accounts.close()


def _credential_variables(store: Store) -> frozenset[str]:
    """Names of the variables that hold keys of accounts, those of Provider objects among them."""
    found = {name for sort in SORTS.values() for name in sort.keys}
    for row in store.resources.living(PROVIDER):
        spec = parse_spec(PROVIDER, row.spec)
        if isinstance(spec, ProviderSpec):
            found.update(spec.variables)
    return frozenset(found)


async def _call_after(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


class LeaseLost(StoreError):
    """Another operator may lead by now. This process never writes again."""

    final = True


class _FencedStore:
    """A store that checks the lease at the end of each transaction; the rest is the store's own."""

    def __init__(self, store: Store, leads: Callable[[], bool]) -> None:
        self._store = store
        self._leads = leads
        # Asked for dozens of times for each object.
        self.resources, self.runs = store.resources, store.runs
        self.cache, self.events = store.cache, store.events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._store.transaction():
            yield
            # Last of all: a pass may have taken long, and what follows makes it durable.
            if not self._leads():
                raise LeaseLost(
                    "the lease has expired; nothing was written",
                    hint="another operator works now, or this one once it is started again",
                )


def fence_store(store: Store, leads: Callable[[], bool]) -> Store:
    return cast("Store", _FencedStore(store, leads))
