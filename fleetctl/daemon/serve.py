"""The controller process: store, providers, engine and socket put together, and an orderly end.

Called by `fleetctl up`; `apply` starts it in the background. Decides nothing itself. The operator
puts the same parts together (operator/operator_process.py).
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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused
from fleetctl.common.state_paths import (
    CONTROLLER,
    RESTORED,
    SOCKET,
    SOCKET_PATH_BYTES_MAX,
    TRACES,
    deny_writes_of_others,
    open_private,
)
from fleetctl.common.telemetry import (
    CLOSE_S,
    SERVICE,
    WAITING_MAX,
    AttributeValue,
    ExportThread,
    SpanExport,
    TelemetrySettings,
    TraceContext,
    make_resource,
    quieten_sdk,
    read_number,
    read_settings,
)
from fleetctl.common.version import VERSION
from fleetctl.stores.state_dir import CHANGES_LOST, changes_lost

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.resources import Resource

    from fleetctl.apply.change import Change
    from fleetctl.apply.cost.estimate import CostForecast
    from fleetctl.daemon.api import ControllerApi
    from fleetctl.engine.engine import Engine
    from fleetctl.engine.execute.secrets import SecretValues
    from fleetctl.engine.shared.engine_state import EngineSettings, EngineState
    from fleetctl.providers.contract.base import Backend
    from fleetctl.stores.base import Store
    from fleetctl.wiring.account_registry import AccountRegistry

log = logging.getLogger("fleetctl.serve")

IDLE_CHECK_S = 1.0
SOCKET_CHECK_S = 1.0  # a command that finds none waits for longer than this
# About 5 MB between two collections; Python's own 700 is for small heaps. Fewer would traverse the
# objects of pending calls again and again, and more would make a noticeable pause.
GC_YOUNG_OBJECTS = 50_000


def serve_controller(
    home: Path,
    *,
    idle_exit_s: float | None,
    foreground: bool,
) -> int:
    """Runs the controller until it is asked to end or has been idle for idle_exit_s. Returns the
    exit code.

    Raises StoreError when another controller runs, or the store cannot be used, and Refused for an
    unavailable event loop.
    """
    from fleetctl.common.event_loop import loop_factory
    from fleetctl.daemon.background_work import engine_settings
    from fleetctl.wiring.account_registry import open_store

    deny_writes_of_others()
    log_to_stderr()
    runner = asyncio.Runner(loop_factory=loop_factory())
    settings = engine_settings()
    store = open_store(home, SystemClock())
    try:
        with runner:
            work = _serve_until_stopped(
                home,
                store,
                settings,
                idle_exit_s=idle_exit_s,
                foreground=foreground,
            )
            runner.run(work)
    finally:
        store.close()
    return 0


async def _serve_until_stopped(
    home: Path,
    store: Store,
    settings: EngineSettings,
    *,
    idle_exit_s: float | None,
    foreground: bool,
) -> None:
    from fleetctl.daemon.adopt import OrphanAdopter
    from fleetctl.daemon.api import ControllerApi
    from fleetctl.daemon.background_work import sweep_forever
    from fleetctl.engine.execute.retention import Retention
    from fleetctl.engine.execute.secrets import SecretValues
    from fleetctl.engine.kinds.traces import RunTraces

    secrets = SecretValues(store, os.environ)
    engine, accounts = engine_of(home, store, settings, secrets)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, engine.stop)
    api = ControllerApi(
        engine.state,
        engine.market,
        secrets,
        shutdown=engine.stop,
        forecaster=partial(forecast_of, home, engine.state.providers),
        adopter=OrphanAdopter(engine.state, engine.market, accounts.orphans),
        retention=engine.parts.get(Retention),
        traces=engine.parts.get(RunTraces),
    )
    start_recovery(home, engine, accounts)
    door = ControllerSocket(home, api)
    await door.open()
    watches = [
        asyncio.ensure_future(_end_when_idle(engine, api, idle_exit_s)),
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
    home: Path,
    store: Store,
    settings: EngineSettings,
    secrets: SecretValues,
    *,
    programs: bool = True,
) -> tuple[Engine, AccountRegistry]:
    """Returns the engine, wired to the world, and the accounts that it works with. programs: a
    notice may start one.
    """
    from fleetctl.apply.write.scheduled import ScheduleMaker
    from fleetctl.daemon.background_work import make_backup
    from fleetctl.engine.engine import Engine, EngineServices
    from fleetctl.gateway.gateway_client import DIRECTORY, GatewayProcess
    from fleetctl.gitops.git_keeper import GitKeeper
    from fleetctl.notices.send import send_notice
    from fleetctl.retention.cleaner import RetentionCleaner
    from fleetctl.tracking.manifest_sources import ManifestSources
    from fleetctl.wandb.calls import make_connector
    from fleetctl.wiring.account_registry import AccountRegistry

    engines: list[Engine] = []
    accounts = AccountRegistry(
        home,
        store_id=store.store_id,
        notify=lambda run: engines[0].notify(run),
        environ=secrets.value,
    )
    sources = ManifestSources(home)
    telemetry = read_settings(os.environ)
    engine = Engine(
        store=store,
        providers=accounts.backends,
        clock=SystemClock(),
        settings=settings,
        secrets=secrets.resolve,
        accounts=accounts,
        sources=sources,
        outside=EngineServices(
            wandb=make_connector(),
            gateway=GatewayProcess(home / DIRECTORY),
            maker=ScheduleMaker(store, accounts.backends, sources),
            backup=partial(make_backup, home),
            keeper=GitKeeper(home, store, secrets.resolve),
            cleaner=RetentionCleaner(home),
            send=partial(send_notice, programs=programs),
            traces=make_span_export(home, store.store_id, telemetry),
        ),
    )
    engines.append(engine)
    if telemetry.logs:
        export_logs(engine, secrets)
    return engine, accounts


def make_span_export(
    home: Path,
    store_id: str,
    telemetry: TelemetrySettings,
) -> SpanExport | None:
    """Returns the sink of spans; None where none was requested. Logs why a requested one sends
    nothing."""
    if telemetry.problem:
        why = {"why": telemetry.problem, "hint": telemetry.hint}
        log.warning("telemetry is not exported as requested", extra=why)
    if not telemetry.traces and not telemetry.problem:
        return None
    return SpanExport(os.environ, settings=telemetry, instance=store_id, spool=home / TRACES)


def export_logs(engine: Engine, secrets: SecretValues) -> None:
    """Exports the log of this process beside writing it."""
    from fleetctl.engine.kinds.traces import RunTraces

    handler = OtlpLogHandler(
        os.environ,
        instance=engine.state.store.store_id,
        locate=engine.parts.get(RunTraces).locate,
        mask=secrets.mask,
    )
    logging.getLogger("fleetctl").addHandler(handler)


def start_recovery(
    home: Path,
    engine: Engine,
    accounts: AccountRegistry,
) -> None:
    """Makes a restored store ask the providers first."""
    if (home / RESTORED).exists():
        from fleetctl.daemon.adopt import RestoreRecovery

        done = partial(_report_recovery, home, engine.state)
        engine.state.recovery = RestoreRecovery(engine.state, engine.market, accounts.orphans, done)


def _report_recovery(home: Path, state: EngineState) -> None:
    """Adds an event to each object with work if changes of the store are lost. Called once all
    providers have replied."""
    if changes_lost(home):
        for uid in state.tracks:
            state.say(uid, "ChangesLost", CHANGES_LOST, kind="Warning")
    (home / RESTORED).unlink(missing_ok=True)


def forecast_of(
    home: Path,
    providers: Mapping[str, Backend],
    changes: Sequence[Change],
) -> Mapping[str, CostForecast]:
    """Loads the planner with the first work that costs money: most controllers never need it."""
    from fleetctl.apply.plan.build_plan import forecast_costs

    return forecast_costs(home, providers, changes)


def calm_collector() -> None:
    """Freezes the loaded modules, and makes collections rare, for passes make little garbage in
    cycles.

    A full collection over 100,000 resident objects pauses the loop for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 20, 50)


async def _end_when_idle(
    engine: Engine,
    api: ControllerApi,
    idle_exit_s: float | None,
) -> None:
    """Ends the engine after idle_exit_s without live work and requests."""
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


class ControllerSocket:
    """The socket in the state directory. A lost one, as to a cleaner of old files, is made
    again."""

    def __init__(self, home: Path, api: ControllerApi) -> None:
        self._home = home
        self._api = api
        self._server: asyncio.Server | None = None
        self._mark: tuple[int, int] | None = None

    async def open(self) -> None:
        """Opens the socket. Raises Refused where it cannot listen there."""
        listener = _open_socket(self._home)
        self._mark = _mark_of(self._home)
        self._server = await self._api.serve(listener)

    async def keep_open(self) -> None:
        if self._mark is None:
            return  # it listens elsewhere, and records that path
        while True:
            await asyncio.sleep(SOCKET_CHECK_S)
            if _mark_of(self._home) == self._mark or not self._home.is_dir():
                continue
            log.warning("the socket was lost; it is created again", extra={"home": str(self._home)})
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
    """Returns the identity of the file at the socket's path; None for no file."""
    try:
        found = (home / SOCKET).lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_socket(home: Path) -> socket.socket:
    """Returns a listening socket at its well-known path; a long path is bound through the
    directory's handle.

    The store's lock is held, so an existing socket belongs to a dead controller.
    """
    place = home / SOCKET
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
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
    with open(home / CONTROLLER, "w", encoding="utf-8", opener=open_private) as file:
        json.dump(about, file)
    listener.setblocking(False)
    return listener


def log_to_stderr() -> None:
    """Logs one line a record, with its keys; the background controller's stderr is
    controller.log."""
    handler = logging.StreamHandler()
    handler.setFormatter(_KeyValueFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("fleetctl")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


# Fields of every record; the others are the keys of this one.
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _KeyValueFormatter(logging.Formatter):
    """Formats the message, then `key=value` for every extra."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        extras = [f"{k}={v!r}" for k, v in vars(record).items() if k not in _PLAIN]
        first, newline, rest = text.partition("\n")
        return " ".join([first, *extras]) + newline + rest


@dataclass(frozen=True, slots=True)
class ExportedLog:
    """A record of a logger, with the span that it belongs to, if any."""

    at_ns: int
    level: int
    level_name: str
    text: str
    attributes: Mapping[str, AttributeValue]
    context: TraceContext | None


class OtlpLogHandler(logging.Handler):
    """A handler that exports what it is given. locate: finds the span of a record by its keys.
    mask: hides values of secrets.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        instance: str,
        locate: Callable[[Mapping[str, object]], TraceContext | None],
        mask: Callable[[str], str],
    ) -> None:
        super().__init__()
        self._locate, self._mask = locate, mask
        self._count = 0
        delay_s = read_number(environ.get("OTEL_BLRP_SCHEDULE_DELAY", ""), 1000.0) / 1000
        self._thread = ExportThread(
            "log records",
            lambda: _LogSender(environ, instance),
            delay_s=delay_s,
            waiting_max=WAITING_MAX,
        )

    def emit(self, record: logging.LogRecord) -> None:
        keys = {name: it for name, it in vars(record).items() if name not in _PLAIN}
        attributes: dict[str, AttributeValue] = {
            name: it if isinstance(it, bool | int | float) else self._mask(str(it))
            for name, it in keys.items()
        }
        attributes["log.logger"] = record.name
        if record.exc_info and record.exc_info[0] is not None:
            attributes["exception.type"] = record.exc_info[0].__name__
        line = ExportedLog(
            int(record.created * 1_000_000_000),
            record.levelno,
            record.levelname,
            self._mask(record.getMessage()),
            attributes,
            self._locate(keys),
        )
        self._count += 1
        self._thread.add({str(self._count): line})

    def close(self) -> None:
        """Sends what waits, at the end of the process; leaves it after a while."""
        self._thread.close(CLOSE_S)
        super().close()


class _LogSender:
    def __init__(self, environ: Mapping[str, str], instance: str) -> None:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        quieten_sdk()
        self._exporter = OTLPLogExporter()
        self._resource = make_resource(environ, instance)

    def send(self, batch: Sequence[ExportedLog]) -> bool:
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        records = [_to_log_record(it, self._resource) for it in batch]
        return self._exporter.export(records) is LogRecordExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()


def _to_log_record(line: ExportedLog, resource: Resource) -> ReadableLogRecord:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import TraceFlags

    # DEBUG, INFO, WARN, ERROR and FATAL are 5, 9, 13, 17 and 21 there, and 10 to 50 here.
    number = SeverityNumber(min(21, max(1, 4 * (line.level // 10) + 1)))
    context = line.context
    record = LogRecord(
        timestamp=line.at_ns,
        observed_timestamp=time.time_ns(),
        trace_id=int(context.trace_id, 16) if context is not None else None,
        span_id=int(context.span_id, 16) if context is not None else None,
        trace_flags=TraceFlags(TraceFlags.SAMPLED) if context is not None else None,
        severity_text=line.level_name,
        severity_number=number,
        body=line.text,
        attributes=dict(line.attributes),
    )
    return ReadableLogRecord(
        record, resource, instrumentation_scope=InstrumentationScope(SERVICE, VERSION)
    )
