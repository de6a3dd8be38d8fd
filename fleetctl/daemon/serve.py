"""The controller process: store, providers, engine and socket put together, and an orderly end.

Called by `fleetctl up`; `apply` starts it in the background. Decides nothing itself. The operator
puts the same parts together (operator/process.py).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused
from fleetctl.common.home import CONTROLLER, RESTORED, SOCKET, SOCKET_PATH_BYTES_MAX

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.apply.forecast import Forecast
    from fleetctl.daemon.api import Api
    from fleetctl.engine.engine import Engine
    from fleetctl.engine.execute.secrets import SecretValues
    from fleetctl.engine.shared.settings import Settings
    from fleetctl.providers.contract.base import Backend
    from fleetctl.stores.base import Store
    from fleetctl.wiring.accounts import Accounts

log = logging.getLogger("fleetctl.serve")

IDLE_CHECK_S = 1.0
SOCKET_CHECK_S = 1.0  # a command that finds none waits for longer than this
# About 5 MB between two collections; Python's own 700 is for small heaps. Fewer would look again
# and again at what the calls under way hold, and more would make a pause that people notice.
GC_YOUNG_OBJECTS = 50_000


def serve(home: Path, *, idle_exit_s: float | None, foreground: bool) -> int:
    """Run the controller until it is told to end or has been idle for idle_exit_s. Returns the exit
    code.

    Raises StoreError when another controller runs, or the store cannot be used, and Refused for an
    event loop that cannot be had.
    """
    from fleetctl.common.event_loop import loop_factory
    from fleetctl.daemon.retention import engine_settings
    from fleetctl.wiring.accounts import open_store

    log_to_stderr()
    runner, settings = asyncio.Runner(loop_factory=loop_factory()), engine_settings()
    store = open_store(home, SystemClock())
    try:
        with runner:
            work = _serve(home, store, settings, idle_exit_s=idle_exit_s, foreground=foreground)
            runner.run(work)
    finally:
        store.close()
    return 0


async def _serve(
    home: Path, store: Store, settings: Settings, *, idle_exit_s: float | None, foreground: bool
) -> None:
    from fleetctl.daemon.adoption.adopt import Adopter
    from fleetctl.daemon.api import Api
    from fleetctl.daemon.orphan_programs import sweep_forever
    from fleetctl.engine.execute.secrets import SecretValues

    secrets = SecretValues(store, os.environ)
    engine, accounts = engine_of(home, store, settings, secrets)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, engine.stop)
    api = Api(
        engine.state,
        engine.market,
        secrets,
        shutdown=engine.stop,
        forecaster=partial(forecast_of, home, engine.state.providers),
        adopter=Adopter(engine.state, engine.market, accounts.orphans),
        retention=engine.retention,
    )
    recover(home, engine, accounts)
    door = Door(home, api)
    await door.open()
    watches = [
        asyncio.ensure_future(_idle(engine, api, idle_exit_s)),
        asyncio.ensure_future(door.keep_open()),
        asyncio.ensure_future(sweep_forever(home, every_s=settings.sweep_s)),
    ]
    calm_collector()
    if foreground:
        print(f"controller runs, pid {os.getpid()}; Ctrl-C ends it", file=sys.stderr)
    try:
        await engine.run()
    finally:
        for watch in watches:
            watch.cancel()
        door.close()
        await accounts.close()


def engine_of(
    home: Path, store: Store, settings: Settings, secrets: SecretValues, *, programs: bool = True
) -> tuple[Engine, Accounts]:
    """The engine, wired to the world, and the accounts that it works with. programs: whether a
    notice may start one.
    """
    from fleetctl.apply.write.scheduled import Scheduled
    from fleetctl.daemon.backing_up import backed_up
    from fleetctl.engine.engine import Engine
    from fleetctl.engine.outside import Outside
    from fleetctl.gateway.reach.gateway import DIRECTORY
    from fleetctl.gateway.reach.process import GatewayProcess
    from fleetctl.gitops.keeper import Keeper
    from fleetctl.notices.send import send
    from fleetctl.retention.cleaner import Cleaner
    from fleetctl.tracking.sources import Sources
    from fleetctl.wandb.client import connector
    from fleetctl.wiring.accounts import Accounts

    engines: list[Engine] = []
    accounts = Accounts(
        home,
        store_id=store.store_id,
        notify=lambda run: engines[0].notify(run),
        environ=secrets.value,
    )
    sources = Sources(home)
    engine = Engine(
        store=store,
        providers=accounts.backends,
        clock=SystemClock(),
        settings=settings,
        secrets=secrets.resolve,
        accounts=accounts,
        sources=sources,
        outside=Outside(
            wandb=connector(),
            gateway=GatewayProcess(home / DIRECTORY),
            maker=Scheduled(store, accounts.backends, sources),
            backup=partial(backed_up, home),
            keeper=Keeper(home, store, secrets.resolve),
            cleaner=Cleaner(home),
            send=partial(send, programs=programs),
        ),
    )
    engines.append(engine)
    return engine, accounts


def recover(home: Path, engine: Engine, accounts: Accounts) -> None:
    """A restored store asks the providers first."""
    if (home / RESTORED).exists():
        from fleetctl.daemon.adoption.recover import Recovery

        done = partial((home / RESTORED).unlink, missing_ok=True)
        engine.state.recovery = Recovery(engine.state, engine.market, accounts.orphans, done)


def forecast_of(
    home: Path, providers: Mapping[str, Backend], changes: Sequence[Change]
) -> Mapping[str, Forecast]:
    """Loads the planner with the first work that costs money: most controllers never need it."""
    from fleetctl.apply.cost.forecast import forecast

    return forecast(home, providers, changes)


def calm_collector() -> None:
    """What is loaded by now stays, and passes make little garbage in cycles: look at it rarely.

    A full collection over 100,000 resident objects pauses the loop for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 20, 50)


async def _idle(engine: Engine, api: Api, idle_exit_s: float | None) -> None:
    """End the engine when nothing was live and nobody asked for anything for so long."""
    if idle_exit_s is None:
        return
    idle_since_s = engine.state.clock.now_s()
    while True:
        await asyncio.sleep(min(IDLE_CHECK_S, idle_exit_s / 2 + 0.01))
        now_s = engine.state.clock.now_s()
        if not engine.idle():
            idle_since_s = now_s
        if now_s - max(idle_since_s, api.last_request_at_s) >= idle_exit_s:
            log.info("idle; ending")
            engine.stop()
            return


class Door:
    """The socket in the home. One that is lost, as to a cleaner of old files, is made anew."""

    def __init__(self, home: Path, api: Api) -> None:
        self._home = home
        self._api = api
        self._server: asyncio.Server | None = None
        self._mark: tuple[int, int] | None = None

    async def open(self) -> None:
        """Raises Refused where nothing can listen there."""
        listener = _listen(self._home)
        self._mark = _mark_of(self._home)
        self._server = await self._api.serve(listener)

    async def keep_open(self) -> None:
        if self._mark is None:
            return  # it listens elsewhere, and says where
        while True:
            await asyncio.sleep(SOCKET_CHECK_S)
            if _mark_of(self._home) == self._mark or not self._home.is_dir():
                continue
            log.warning("the socket was lost; it is made anew", extra={"home": str(self._home)})
            old = self._server
            try:
                await self.open()
            except Refused as error:
                log.warning("no new socket", extra={"error": str(error)})
                continue
            if old is not None:
                old.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for name in (SOCKET, CONTROLLER):
            (self._home / name).unlink(missing_ok=True)


def _mark_of(home: Path) -> tuple[int, int] | None:
    """Which file the socket's name leads to; None for none."""
    try:
        found = (home / SOCKET).lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _listen(home: Path) -> socket.socket:
    """A listening socket at its well-known place; a long path is bound through the directory's
    handle.

    The store's lock is held, so a socket that is there already belongs to a dead controller.
    """
    place, listener = home / SOCKET, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place.unlink(missing_ok=True)
    where = str(place)
    old_mask = os.umask(0o177)
    handle = -1
    try:
        if len(os.fsencode(where)) > SOCKET_PATH_BYTES_MAX:
            if Path("/proc/self/fd").is_dir():
                handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
                where = f"/proc/self/fd/{handle}/{SOCKET}"
            else:
                where = str(Path(tempfile.mkdtemp(prefix="fleetctl-")) / "s")
        listener.bind(where)
    except OSError as error:
        raise Refused(
            f"the controller cannot listen below `{home}`: {error.strerror}",
            hint="set FLEETCTL_HOME to a directory on a local disk",
        ) from error
    finally:
        os.umask(old_mask)
        if handle >= 0:
            os.close(handle)
    about = {"pid": os.getpid(), "socket": str(place) if handle >= 0 else where}
    (home / CONTROLLER).write_text(json.dumps(about), encoding="utf-8")
    listener.setblocking(False)
    return listener


def log_to_stderr() -> None:
    """One line a record, with its keys; the background controller's stderr is controller.log."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Keys("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("fleetctl")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


class _Keys(logging.Formatter):
    """The message, then `key=value` for every extra."""

    _PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        extras = [f"{k}={v!r}" for k, v in vars(record).items() if k not in self._PLAIN]
        first, newline, rest = text.partition("\n")
        return " ".join([first, *extras]) + newline + rest
