"""A receiver of OTLP over HTTP on loopback, which keeps what it was sent."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

WAIT_S = 120.0


@dataclass(frozen=True)
class Received:
    """A span as it came."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    kind: int
    failed: bool
    problem: str
    links: tuple[str, ...]
    events: tuple[str, ...]
    began_ns: int
    ended_ns: int
    service: str
    schema: str


@dataclass(frozen=True)
class ReceivedLog:
    text: str
    severity: str
    trace: str
    span: str
    attributes: dict[str, Any]


@dataclass
class Collector:
    port: int = 0
    spans: list[Received] = field(default_factory=list)
    logs: list[ReceivedLog] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Received]:
        return [it for it in self.spans if it.name == name]

    def until(self, reached: Callable[[], bool]) -> None:
        """Returns once what was received fulfils a condition."""
        until_s = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < until_s, sorted(it.name for it in self.spans)
            time.sleep(0.05)

    def take_traces(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _read(group.resource.attributes)["service.name"]
            for scope in group.scope_spans:
                for it in scope.spans:
                    self.spans.append(
                        Received(
                            it.name,
                            it.trace_id.hex(),
                            it.span_id.hex(),
                            it.parent_span_id.hex(),
                            _read(it.attributes),
                            it.kind,
                            it.status.code == 2,
                            it.status.message,
                            tuple(link.span_id.hex() for link in it.links),
                            tuple(event.name for event in it.events),
                            it.start_time_unix_nano,
                            it.end_time_unix_nano,
                            service,
                            scope.schema_url,
                        )
                    )

    def take_logs(self, body: bytes) -> None:
        for group in ExportLogsServiceRequest.FromString(body).resource_logs:
            for scope in group.scope_logs:
                for it in scope.log_records:
                    self.logs.append(
                        ReceivedLog(
                            it.body.string_value,
                            it.severity_text,
                            it.trace_id.hex(),
                            it.span_id.hex(),
                            _read(it.attributes),
                        )
                    )


def _read(attributes: Any) -> dict[str, Any]:
    return {it.key: _value(it.value) for it in attributes}


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(it) for it in value.array_value.values]
    return getattr(value, which) if which else None


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector until the end of the block. port: 0 for a free one."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.raw.append(body)
            take = collector.take_logs if self.path == "/v1/logs" else collector.take_traces
            take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def never_answering() -> Iterator[tuple[int, list[socket.socket]]]:
    """The port of a server that takes connections and answers none; the connections it has."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    taken: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return  # closed by the test

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], taken
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in taken:
            connection.close()
        thread.join(10)
