"""A meeting of tasks, wherever they run: each says over loopback that it has begun, and gets its
answer once all of them have.
"""

from __future__ import annotations

import http.server
import threading
from typing import Self

WAIT_S = 600.0


class Gathering:
    """begun: what each task that began has said, in order."""

    def __init__(self, count: int) -> None:
        self.begun: list[str] = []
        self._count = count
        self._all = threading.Event()
        self._lock = threading.Lock()
        gathering = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gathering._meet(self.path.strip("/"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def task(self) -> str:
        """Returns the Python of a task with a parameter `number`."""
        return (
            "import urllib.request\n"
            f"url = f'http://127.0.0.1:{self._server.server_port}/{{number}}'\n"
            f"urllib.request.urlopen(url, timeout={WAIT_S:.0f}).read()\n"
            "SUBMIT(number=number)"
        )

    def _meet(self, said: str) -> None:
        with self._lock:
            self.begun.append(said)
            if len(set(self.begun)) == self._count:
                self._all.set()
        self._all.wait(WAIT_S)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._all.set()
        self._server.shutdown()
        self._server.server_close()
