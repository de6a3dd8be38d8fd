"""A sink of webhooks on loopback that fails as it is told to: what came, and in which order.

with Sink() as sink:
    sink.script += [500, HANG, CUT]     # the next requests; then 204 again
    ...
    sink.requests[0].headers["webhook-id"]
"""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

HANG = "hang"  # no answer until the sink closes
CUT = "cut"  # the request is read, and the connection ends
Step = int | str | tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]  # by their names in small letters
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Sink:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.script: deque[Step] = deque()
        self.always: Step = 204  # once the script is over
        self.closing = threading.Event()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sink._answer(self)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    @property
    def ids(self) -> list[str]:
        return [it.id for it in self.requests]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0)).decode()
        headers = {name.lower(): value for name, value in handler.headers.items()}
        step = self.script.popleft() if self.script else self.always
        self.requests.append(Request(handler.path, headers, body))
        if step == HANG:
            self.closing.wait(600)
            return
        if step == CUT:
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        status, more = step if isinstance(step, tuple) else (int(step), {})
        handler.send_response(status)
        for name, value in more.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def __enter__(self) -> Sink:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
