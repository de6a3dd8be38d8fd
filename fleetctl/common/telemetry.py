"""Exports spans and log records by the protocol of OpenTelemetry, from threads of their own.

The controller and the gateway make one exporter each, where the standard variables name a
collector. A span has the ids that its maker derives, and waits in a bounded queue; those of the
controller also wait in a file, until the collector has confirmed them. The SDK is imported by the
threads alone: without a collector nothing is loaded, and no caller ever waits for one.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fleetctl.common.install import install_hint
from fleetctl.common.state_paths import open_private
from fleetctl.common.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

TRACEPARENT = "TRACEPARENT"  # the variable, and in small letters the header
EXTRA = "otel"
PACKAGE = "opentelemetry.exporter.otlp.proto.http"
SERVICE = "fleetctl"  # the name of the service, where no variable has another
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
DELAY = "OTEL_BSP_SCHEDULE_DELAY"  # milliseconds
PREFIX = "OTEL_"

DELAY_S = 5.0  # the standard's own value
WAITING_MAX = 10_000  # spans or records; about 6 MB
BATCH_MAX = 512  # the standard's own value
RETRY_S = 2.0  # after the first batch that was not taken; doubles
RETRY_MAX_S = 60.0
SPOOL_BYTES_MAX = 16 << 20
CLOSE_S = 3.0  # for the last items of a process
SENT_KEPT_MAX = 20_000  # ids of spans that are not sent again

AttributeValue = str | bool | int | float | Sequence[str]

log = logging.getLogger("fleetctl.telemetry")


# -- ids -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span as its children know it. span_id: empty for the root of a trace that is to come."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16
    sampled: bool = True

    @property
    def header(self) -> str:
        """Returns the value of W3C's header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Returns the context of a `traceparent`; None for a text that is none. A later version is read
    as version 00, as W3C's recommendation has it.
    """
    version, _, rest = text.strip().lower().partition("-")
    parts = rest.split("-")
    lengths = [len(it) for it in (version, *parts[:3])]
    if lengths != [2, 32, 16, 2] or version == "ff" or (version == "00" and len(parts) > 3):
        return None
    if not all(_is_hex(it) for it in (version, *parts[:3])):
        return None
    trace_id, span_id, flags = parts[:3]
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def derive_trace_id(*parts: object) -> str:
    """Returns the same id for the same parts, in every process."""
    return _derive_id(parts, 16)


def derive_span_id(*parts: object) -> str:
    """Returns the same id for the same parts, in every process."""
    return _derive_id(parts, 8)


def _derive_id(parts: tuple[object, ...], size: int) -> str:
    text = "\0".join(str(it) for it in parts)
    return blake2b(text.encode(), digest_size=size).hexdigest()


def is_sampled(trace_id: str, parent: TraceContext | None, environ: Mapping[str, str]) -> bool:
    """Decides as the sampler that `OTEL_TRACES_SAMPLER` names does; an unknown one samples all."""
    name = environ.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").strip().lower()
    if name.startswith("parentbased_") and parent is not None:
        return parent.sampled
    rule = name.removeprefix("parentbased_")
    if rule == "always_off":
        return False
    if rule != "traceidratio":
        return True
    share = read_number(environ.get("OTEL_TRACES_SAMPLER_ARG", ""), 1.0)
    return int(trace_id[16:], 16) < round(share * 2**64)


def make_trace_context(parent: TraceContext | None, environ: Mapping[str, str]) -> TraceContext:
    """Returns the context of a new span: a child of parent, or the root of a new trace."""
    trace_id = parent.trace_id if parent is not None else os.urandom(16).hex()
    return TraceContext(trace_id, os.urandom(8).hex(), is_sampled(trace_id, parent, environ))


# -- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """The signals to export. problem, hint: why one that was requested is not exported."""

    traces: bool = False
    logs: bool = False
    problem: str = ""
    hint: str = ""


def read_settings(environ: Mapping[str, str]) -> TelemetrySettings:
    """Returns the settings that the standard variables make. Imports nothing of OpenTelemetry."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TelemetrySettings()
    named = [_list_exporters(environ, it) for it in ("TRACES", "LOGS")]
    endpoint = environ.get(ENDPOINT) or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    traces = "otlp" in named[0] or bool(endpoint and not named[0])
    logs = "otlp" in named[1]
    others = [it for found in named for it in found if it not in ("otlp", "none")]
    problem = hint = ""
    if others:
        problem = f"fleetctl exports by `otlp` alone, and not by `{others[0]}`"
        hint = "OTEL_TRACES_EXPORTER=otlp, and a collector that passes them on"
    if not traces and not logs:
        return TelemetrySettings(problem=problem, hint=hint)
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol != "http/protobuf":
        problem = f"fleetctl exports by `http/protobuf`, and not by `{protocol}`"
        hint = "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and the port for it, mostly 4318"
        return TelemetrySettings(problem=problem, hint=hint)
    if not _has_package():
        problem = "traces are requested, and the packages of OpenTelemetry are not installed here"
        return TelemetrySettings(problem=problem, hint=install_hint(EXTRA))
    return TelemetrySettings(traces, logs, problem, hint)


def _list_exporters(environ: Mapping[str, str], signal: str) -> list[str]:
    text = environ.get(f"OTEL_{signal}_EXPORTER", "")
    return [it.strip().lower() for it in text.split(",") if it.strip()]


def _has_package() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:  # of a parent
        return False


def read_number(text: str, usual: float) -> float:
    try:
        return float(text) if text else usual
    except ValueError:
        return usual


# -- spans -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A span that has ended. problem: why it failed; empty where it did not. confirms: what has to
    be stored before it counts, such as a run's name; empty: it counts at once.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_at_s: float
    ended_at_s: float
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    kind: str = "INTERNAL"
    problem: str = ""
    link_id: str = ""  # a span of the same trace that it goes on from
    events: Sequence[tuple[str, float]] = ()  # name, time
    confirms: str = ""
    schema: str = ""  # the URL of the conventions that its attributes follow


class SpanSink(Protocol):
    """Takes spans; never waits, and never raises."""

    def add(self, spans: Sequence[SpanRecord]) -> None:
        """Takes spans whose reason is stored."""
        ...

    def hold(self, spans: Sequence[SpanRecord]) -> None:
        """Takes spans of a transaction that is under way."""
        ...

    def release(self, *, committed: bool) -> None:
        """Sends the spans that were held, or drops them, as their transaction ended."""
        ...

    def recover(self, is_stored: Callable[[SpanRecord], bool]) -> None:
        """Sends the spans that an earlier process left, of which is_stored is true."""
        ...


class Sender(Protocol):
    """A connection of a thread to a collector."""

    def send(self, batch: Sequence[Any]) -> bool:
        """Returns True once the collector has taken the batch."""
        ...

    def close(self) -> None: ...


class ExportThread:
    """A bounded queue of items by id, and the thread that sends them. The oldest go first, also
    where there are too many. connect: imports the SDK; called by the thread.
    """

    def __init__(
        self,
        what: str,
        connect: Callable[[], Sender],
        *,
        delay_s: float,
        waiting_max: int,
        sent: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self._what, self._connect, self._sent = what, connect, sent
        self._delay_s, self._waiting_max = delay_s, waiting_max
        self._waiting: OrderedDict[str, Any] = OrderedDict()
        self._taken: OrderedDict[str, None] = OrderedDict()  # ids that are not sent again
        self._woken = threading.Condition()
        self._closing = False
        self._sender: Sender | None = None
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def add(self, items: Mapping[str, Any]) -> list[str]:
        """Takes items; returns the ids of those that had to go for them."""
        gone = []
        with self._woken:
            for key, item in items.items():
                # One that is being sent stays the same, so that it is not sent once more.
                if key not in self._taken:
                    self._waiting.setdefault(key, item)
            while len(self._waiting) > self._waiting_max:
                gone.append(self._waiting.popitem(last=False)[0])
            self.dropped += len(gone)
            if self._thread is None and not self._closing:
                # A daemon: a collector that hangs must not keep the process.
                name = f"fleetctl-{self._what}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            if len(self._waiting) >= BATCH_MAX:
                self._woken.notify()
        return gone

    def has_taken(self, key: str) -> bool:
        """Returns whether the collector has the item."""
        with self._woken:
            return key in self._taken

    def list_waiting(self) -> list[Any]:
        with self._woken:
            return list(self._waiting.values())

    def close(self, within_s: float) -> None:
        """Sends what waits, and ends the thread; leaves it behind after within_s."""
        with self._woken:
            self._closing = True
            self._woken.notify()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        retry_s = RETRY_S
        failing = False
        while True:
            with self._woken:
                full = len(self._waiting) >= BATCH_MAX
                if not self._closing and (failing or not full):
                    self._woken.wait(retry_s if failing else self._delay_s)
                closing = self._closing
                batch = [it for it, _ in zip(self._waiting.items(), range(BATCH_MAX), strict=False)]
            if batch and self._send(dict(batch)):
                if failing:
                    log.info("the collector takes them again", extra={"what": self._what})
                failing, retry_s = False, RETRY_S
            elif batch:
                if not failing:
                    log.warning("the collector does not take them", extra={"what": self._what})
                retry_s = min(RETRY_MAX_S, retry_s * 2) if failing else RETRY_S
                failing = True
            if closing and (failing or not batch):
                self._disconnect()
                return

    def _send(self, batch: Mapping[str, Any]) -> bool:
        try:
            if self._sender is None:
                self._sender = self._connect()
            taken = self._sender.send(list(batch.values()))
        except Exception as error:  # noqa: BLE001 - of the SDK: no export may end its thread
            kind = type(error).__name__
            log.warning("export failed", extra={"what": self._what, "error": kind})
            taken = False
        if not taken:
            return False
        with self._woken:
            for key in batch:
                self._waiting.pop(key, None)  # it may have been dropped meanwhile
                self._taken[key] = None
            while len(self._taken) > SENT_KEPT_MAX:
                self._taken.popitem(last=False)
        if self._sent is not None:
            self._sent(list(batch))
        return True

    def _disconnect(self) -> None:
        if self._sender is not None:
            self._sender.close()


class SpanExport:
    """The sink of a process. spool: the file in which spans wait, too; None: in memory alone.
    problem: a sentence and a hint, where the settings have one.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        settings: TelemetrySettings,
        instance: str,
        spool: Path | None = None,
    ) -> None:
        self.exports = settings.traces
        self.problem = settings.problem and f"{settings.problem}; {settings.hint}"
        delay_s = read_number(environ.get(DELAY, ""), DELAY_S * 1000) / 1000
        self._thread = ExportThread(
            "spans",
            lambda: _SpanSender(environ, instance),
            delay_s=delay_s,
            waiting_max=WAITING_MAX,
            sent=self._note_sent,
        )
        self._spool = SpanSpool(spool) if spool is not None and self.exports else None
        self._held: list[SpanRecord] = []

    def add(self, spans: Sequence[SpanRecord]) -> None:
        fresh = self._list_fresh(spans)
        self._write(list(fresh.values()), ())
        self._queue(fresh)

    def hold(self, spans: Sequence[SpanRecord]) -> None:
        fresh = list(self._list_fresh(spans).values())
        self._held += fresh
        self._write(fresh, ())

    def release(self, *, committed: bool) -> None:
        if not self._held:
            return
        held, self._held = {it.span_id: it for it in self._held}, []
        if committed:
            self._queue(held)
        else:
            self._write((), list(held))

    def recover(self, is_stored: Callable[[SpanRecord], bool]) -> None:
        if self._spool is None:
            return
        left, self._spool.left = self._spool.left, {}
        found = {key: it for key, it in left.items() if not it.confirms or is_stored(it)}
        self._write((), [key for key in left if key not in found])
        self._queue(found)

    def close(self, within_s: float) -> None:
        self._thread.close(within_s)

    def _list_fresh(self, spans: Sequence[SpanRecord]) -> dict[str, SpanRecord]:
        return {it.span_id: it for it in spans if not self._thread.has_taken(it.span_id)}

    def _queue(self, spans: Mapping[str, SpanRecord]) -> None:
        before = self._thread.dropped
        if gone := self._thread.add(spans):
            self._write((), gone)
            if not before:
                log.warning("spans are dropped, as too many wait", extra={"most": WAITING_MAX})

    def _note_sent(self, ids: Sequence[str]) -> None:
        """Called by the thread."""
        self._write((), ids)
        if self._spool is not None and self._spool.is_large:
            self._spool.rewrite(lambda: [*self._held, *self._thread.list_waiting()])

    def _write(self, spans: Sequence[SpanRecord], done: Sequence[str]) -> None:
        if self._spool is not None and (spans or done):
            self._spool.write(spans, done)


class SpanSpool:
    """The file of spans that wait: one line for each, and one for those that are done. It outlives
    a kill of the process. left: the spans of earlier processes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._broken = False
        self._file: int | None = None  # open for appending
        self.left, whole = _read_spool(path)
        if not whole:
            self._append("\n")  # the next line must not go on in one that a kill cut

    @property
    def is_large(self) -> bool:
        try:
            return self._path.stat().st_size > SPOOL_BYTES_MAX
        except OSError:
            return False

    def write(self, spans: Sequence[SpanRecord], done: Sequence[str]) -> None:
        lines = [json.dumps(asdict(it), separators=(",", ":")) for it in spans]
        if done:
            lines.append(json.dumps({"done": list(done)}, separators=(",", ":")))
        with self._lock:
            self._append("".join(f"{it}\n" for it in lines))

    def rewrite(self, list_spans: Callable[[], Sequence[SpanRecord]]) -> None:
        """Replaces the file by one of the spans that still wait."""
        with self._lock:
            lines = [json.dumps(asdict(it), separators=(",", ":")) for it in list_spans()]
            with suppress(OSError):  # of a disk in trouble; the lines are added all the same
                os.truncate(self._path, 0)
            self._append("".join(f"{it}\n" for it in lines))

    def _append(self, text: str) -> None:
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = open_private(str(self._path), flags)
            os.write(self._file, text.encode())
        except OSError as error:  # such as a full disk; the spans are sent all the same
            if not self._broken:
                log.warning("spans wait in memory alone", extra={"error": str(error.strerror)})
            self._broken = True


def _read_spool(path: Path) -> tuple[dict[str, SpanRecord], bool]:
    """Returns the spans that are not done, and whether the last line is whole; a line that a kill
    cut is left out.
    """
    found: dict[str, SpanRecord] = {}
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return found, True
    for line in text.splitlines():
        try:
            row = json.loads(line)
            if "done" in row:
                for key in row["done"]:
                    found.pop(key, None)
            else:
                found[row["span_id"]] = SpanRecord(**row)
        except (ValueError, TypeError, KeyError):
            continue
    if not found:
        path.unlink(missing_ok=True)
        return found, True
    return found, text.endswith("\n")


# -- the SDK ---------------------------------------------------------------------------------------


def make_resource(environ: Mapping[str, str], instance: str) -> Resource:
    """Returns the resource of all spans and records: the standard variables come first."""
    from opentelemetry.sdk.resources import Resource

    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    own = {"service.version": VERSION, "service.instance.id": instance}
    return Resource.create(own if named else {**own, "service.name": SERVICE})


def quieten_sdk() -> None:
    """Lets the SDK log nothing: each outage would fill the log, and is logged here once."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)


class _SpanSender:
    def __init__(self, environ: Mapping[str, str], instance: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        quieten_sdk()
        self._exporter = OTLPSpanExporter()
        self._resource = make_resource(environ, instance)

    def send(self, batch: Sequence[SpanRecord]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = [_to_span(it, self._resource) for it in batch]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()


def _to_span(record: SpanRecord, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context_of(span_id: str) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        numbers = int(record.trace_id, 16), int(span_id, 16)
        return SpanContext(*numbers, is_remote=False, trace_flags=flags)

    return ReadableSpan(
        record.name,
        context=context_of(record.span_id),
        parent=context_of(record.parent_id) if record.parent_id else None,
        resource=resource,
        attributes=dict(record.attributes),
        events=[Event(name, timestamp=_to_ns(at_s)) for name, at_s in record.events],
        links=[Link(context_of(record.link_id))] if record.link_id else [],
        kind=SpanKind[record.kind],
        status=Status(StatusCode.ERROR, record.problem) if record.problem else Status(),
        start_time=_to_ns(record.began_at_s),
        end_time=_to_ns(max(record.began_at_s, record.ended_at_s)),
        instrumentation_scope=InstrumentationScope(SERVICE, VERSION, record.schema or None),
    )


def _to_ns(at_s: float) -> int:
    return int(at_s * 1_000_000_000)
