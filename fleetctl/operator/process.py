"""The operator process: wait for the lease, open the store, run the engine and the mirror, and end
in order. Called by `fleetctl operator`. Decides nothing itself.

The parts are the controller's own (daemon/serve.py); also its socket, so that `kubectl exec` into
the leader's pod has every command.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import StoreError
from fleetctl.common.event_loop import loop_factory
from fleetctl.common.tasks import cancel
from fleetctl.daemon.adoption.adopt import Adopter
from fleetctl.daemon.api import Api
from fleetctl.daemon.orphan_programs import sweep_forever
from fleetctl.daemon.receive import Receiver
from fleetctl.daemon.retention import engine_settings
from fleetctl.daemon.serve import (
    Door,
    calm_collector,
    engine_of,
    forecast_of,
    log_to_stderr,
    recover,
)
from fleetctl.daemon.verbs import Verbs
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.kubernetes.connection import Connection, connect
from fleetctl.operator.fence import LeaseLost, fenced
from fleetctl.operator.health import answer_probes
from fleetctl.operator.leading.elector import Elector
from fleetctl.operator.leading.lease import DURATION_S, times_of
from fleetctl.operator.mirror.applying import Applier
from fleetctl.operator.mirror.mirror import Mirror
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.stores.base import Store
from fleetctl.wiring.accounts import open_store

log = logging.getLogger("fleetctl.operator")

STORE_AGAIN_S = 0.5  # the process before holds it for a moment longer than the lease
EXIT_OK, EXIT_LOST = 0, 1


@dataclass(frozen=True, slots=True)
class Options:
    """watch: the one namespace whose objects are looked at; empty: all of them. lease_namespace:
    empty: where this process runs. lease_s: how long nobody else leads after the last sign of life
    of a leader. health_port: 0 = nobody asks. local_means: the provider that runs what says
    `local`, which else is this container.
    """

    context: str = ""
    kubeconfig: str = ""
    watch: str = ""
    lease: str = "fleetctl-operator"
    lease_namespace: str = ""
    lease_s: int = DURATION_S
    health_port: int = 0
    local_means: str = DEFAULT_PROVIDER


def operate(home: Path, options: Options) -> int:
    """Until told to end, or the lease is lost. Returns the exit code.

    Raises Refused for a cluster that cannot be reached by what the kubeconfig says, and StoreError.
    """
    log_to_stderr()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_operate(home, options))


async def _operate(home: Path, options: Options) -> int:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connection = await connect(context=options.context, kubeconfig=options.kubeconfig)
    try:
        return await run(home, options, connection, stop)
    finally:
        await connection.close()


async def run(home: Path, options: Options, connection: Connection, stop: asyncio.Event) -> int:
    """The same on a connection that is there, until `stop` is set."""
    elector = Elector(
        connection,
        namespace=options.lease_namespace or connection.namespace,
        name=options.lease,
        times=times_of(options.lease_s),
        me=f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}",
    )
    # A replica that waits for its turn does its part.
    health = await answer_probes(options.health_port, lambda: True) if options.health_port else None
    helpers = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(elector.win())]
    try:
        await asyncio.wait(helpers, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return EXIT_OK
        helpers[1].result()
        helpers.append(asyncio.ensure_future(elector.keep()))
        return await _lead(home, options, connection, elector, stop)
    finally:
        await cancel(helpers)
        if health is not None:
            health.close()


async def _lead(
    home: Path, options: Options, connection: Connection, elector: Elector, stop: asyncio.Event
) -> int:
    store = await _opened(home, elector)
    if store is None:
        return EXIT_LOST
    try:
        await _work(home, options, connection, elector, stop, store)
    except LeaseLost:
        log.warning("ends, because another operator may lead")
    finally:
        store.close()
    lost = not stop.is_set() or not elector.leads()
    await elector.release()
    return EXIT_LOST if lost else EXIT_OK


async def _opened(home: Path, elector: Elector) -> Store | None:
    """The store, once the process that led before has let go of it; None: the lease was lost."""
    while elector.leads():
        try:
            return open_store(home, SystemClock())
        except StoreError as error:
            if "one controller at a time" not in str(error):
                raise
            log.info("the store is held", extra={"error": str(error)})
        await asyncio.sleep(STORE_AGAIN_S)
    return None


async def _work(
    home: Path,
    options: Options,
    connection: Connection,
    elector: Elector,
    stop: asyncio.Event,
    opened: Store,
) -> None:
    store = fenced(opened, elector.leads)
    values = SecretValues(store, os.environ)
    settings = engine_settings()
    engine, accounts = engine_of(home, store, settings, values, programs=False)
    forecaster = partial(forecast_of, home, engine.state.providers)
    adopter = Adopter(engine.state, engine.market, accounts.orphans)
    recover(home, engine, accounts)
    receiver = Receiver(engine.state, engine.market, values, forecaster)
    api = Api(
        engine.state,
        engine.market,
        values,
        shutdown=stop.set,
        forecaster=forecaster,
        adopter=adopter,
        retention=engine.retention,
    )
    door = Door(home, api)
    await door.open()
    mirror = Mirror(
        connection,
        state=engine.state,
        applier=Applier(receiver, options.local_means),
        verbs=Verbs(engine.state, adopter),
        leads=elector.leads,
        namespace=options.watch,
    )
    helpers = [
        asyncio.ensure_future(door.keep_open()),
        asyncio.ensure_future(sweep_forever(home, every_s=settings.sweep_s)),
        asyncio.ensure_future(mirror.run()),
        asyncio.ensure_future(_ended(stop, engine.stop)),
        asyncio.ensure_future(_ended(elector.lost, engine.stop)),
    ]
    calm_collector()
    try:
        await engine.run()
    finally:
        await cancel(helpers)
        door.close()
        await accounts.close()


async def _ended(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()
