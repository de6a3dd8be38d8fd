"""The wire between a command line and a server: a proxy that records its requests and answers, and
a server that gives the recorded answers again."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOMENT = re.compile(r"\b\d{10}(\.\d+)?\b")  # seconds since the epoch
KEPT_HEADERS = (
    "content-type", "x-next-offset", "x-exists", "x-past", "x-ended", "x-fleetctl-version",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer. version: of who sent it."""

    method: str
    target: str
    body: str
    version: str
    status: int
    headers: dict[str, str]
    answer: str

    @property
    def request(self) -> tuple[str, str, str]:
        return request_key(self.method, self.target, self.body)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def request_key(method: str, target: str, body: str) -> tuple[str, str, str]:
    """A request without the moments in it."""
    return method, MOMENT.sub("now", target), MOMENT.sub("now", body)


Answer = Callable[[str, str, bytes, dict[str, str]], tuple[int, dict[str, str], bytes]]


class WireServer:
    """A server on the loopback address that answers by a function."""

    def __init__(self, answer: Answer) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                data = self.rfile.read(int(self.headers.get("content-length", "0")))
                given = {name.lower(): value for name, value in self.headers.items()}
                status, headers, body = answer(self.command, self.path, data, given)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def record_into(found: list[Exchange], url: str) -> WireServer:
    """A proxy before the server at `url`."""

    def answer(
        method: str, target: str, data: bytes, given: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        line = http.client.HTTPConnection(url.removeprefix("http://"), timeout=240)
        passed = {key: value for key, value in given.items() if key not in ("host", "connection")}
        line.request(method, target, data or None, passed)
        got = line.getresponse()
        body = got.read()
        line.close()
        headers = {key.lower(): value for key, value in got.getheaders()}
        headers = {key: headers[key] for key in KEPT_HEADERS if key in headers}
        version = given.get("x-fleetctl-version", "")
        text = (data.decode(), version, got.status, headers, body.decode())
        found.append(Exchange(method, target, *text))
        return got.status, headers, body

    return WireServer(answer)


def replay(exchanges: list[Exchange]) -> WireServer:
    """A server that knows these requests alone; one that comes again gets the next answer, and
    the last one for ever."""
    left: dict[tuple[str, str, str], list[Exchange]] = {}
    for it in exchanges:
        left.setdefault(it.request, []).append(it)
    lock = threading.Lock()

    def answer(
        method: str, target: str, data: bytes, _: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        with lock:
            found = left.get(request_key(method, target, data.decode()))
            if not found:
                errors = [f"not recorded: {method} {target} {data.decode()[:500]}"]
                document = {"ok": False, "code": 1, "errors": errors}
                return 500, {"content-type": "application/json"}, json.dumps(document).encode()
            it = found.pop(0) if len(found) > 1 else found[0]
        return it.status, it.headers, it.answer.encode()

    return WireServer(answer)
