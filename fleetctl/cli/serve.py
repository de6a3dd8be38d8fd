"""The controller process: store, providers, engine and socket put together, and an orderly end.

Called by `fleetctl up`; `apply` starts it in the background. Decides nothing itself.
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

from fleetctl.clock import SystemClock
from fleetctl.errors import Refused
from fleetctl.home import CONTROLLER, SOCKET

if TYPE_CHECKING:
    from fleetctl.engine.api import Api
    from fleetctl.engine.forecasts import Forecast
    from fleetctl.engine.loop import Engine
    from fleetctl.engine.orders import Order
    from fleetctl.manifest import Manifest
    from fleetctl.providers.base import Backend
    from fleetctl.stores.base import Store

log = logging.getLogger("fleetctl.serve")

IDLE_CHECK_S = 1.0
# About 5 MB between two collections; Python's own 700 is for small heaps. Fewer would look again
# and again at what the calls under way hold, and more would make a pause that people notice.
GC_YOUNG_OBJECTS = 50_000
# The shortest limit of the platforms we know (macOS 104, Linux 108), less the final zero.
SOCKET_PATH_BYTES_MAX = 103


def serve(home: Path, *, idle_exit_s: float | None, foreground: bool) -> int:
    """Run the controller until it is told to end or has been idle for idle_exit_s. Returns the exit
    code.

    Raises StoreError when another controller runs, or the store cannot be used, and Refused for an
    event loop that cannot be had.
    """
    from fleetctl.cli.eventloop import loop_factory
    from fleetctl.wiring import open_store

    _log_to_stderr()
    runner = asyncio.Runner(loop_factory=loop_factory())
    store = open_store(home, SystemClock())
    try:
        with runner:
            runner.run(_serve(home, store, idle_exit_s=idle_exit_s, foreground=foreground))
    finally:
        store.close()
    return 0


async def _serve(home: Path, store: Store, *, idle_exit_s: float | None, foreground: bool) -> None:
    from fleetctl.engine.adopting import Adopter
    from fleetctl.engine.api import Api
    from fleetctl.engine.loop import Engine
    from fleetctl.engine.secrets import SecretValues
    from fleetctl.engine.sources import Sources
    from fleetctl.wiring import Accounts

    secrets = SecretValues(store, os.environ)
    engines: list[Engine] = []
    accounts = Accounts(
        home,
        store_id=store.store_id,
        notify=lambda run: engines[0].notify(run),
        environ=secrets.value,
    )
    engine = Engine(
        store=store,
        providers=accounts.backends,
        clock=SystemClock(),
        secrets=secrets.resolve,
        accounts=accounts,
        sources=Sources(home),
    )
    providers = engine.providers
    engines.append(engine)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, engine.stop)
    api = Api(
        engine,
        secrets,
        shutdown=engine.stop,
        forecaster=partial(_forecast, home, providers),
        adopter=Adopter(engine, accounts.strays),
    )
    listener = _listen(home)
    server = await api.serve(listener)
    watch = asyncio.ensure_future(_idle(engine, api, idle_exit_s))
    _calm_collector()
    if foreground:
        print(f"controller runs, pid {os.getpid()}; Ctrl-C ends it", file=sys.stderr)
    try:
        await engine.run()
    finally:
        watch.cancel()
        server.close()
        _remove(home)
        await accounts.close()


def _forecast(
    home: Path, providers: Mapping[str, Backend], manifests: Sequence[Manifest], order: Order
) -> Mapping[str, Forecast]:
    """Loads the planner with the first work that costs money: most controllers never need it."""
    from fleetctl.cli.forecasting import forecast

    return forecast(home, providers, manifests, order)


def _calm_collector() -> None:
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
    idle_since_s = engine.clock.now_s()
    while True:
        await asyncio.sleep(min(IDLE_CHECK_S, idle_exit_s / 2 + 0.01))
        now_s = engine.clock.now_s()
        if not engine.idle():
            idle_since_s = now_s
        if now_s - max(idle_since_s, api.last_request_at_s) >= idle_exit_s:
            log.info("idle; ending")
            engine.stop()
            return


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


def _remove(home: Path) -> None:
    (home / SOCKET).unlink(missing_ok=True)
    (home / CONTROLLER).unlink(missing_ok=True)


def _log_to_stderr() -> None:
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
