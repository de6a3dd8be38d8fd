"""GitHub and GitLab as a comment of a pull request meets them: on loopback, with the comments
that are there as the truth.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "t0ken"
OURS = 77  # the id of who has it
GITHUB = re.compile(r"/repos/o/r/issues/(?:7/comments|comments/(?P<id>\d+))")
GITLAB = re.compile(r"/projects/5/merge_requests/7/notes(?:/(?P<id>\d+))?")


class Forge:
    """comments: id -> body, in order. strangers: ids of those that others wrote. edits: how many
    were changed. down: answers to come that are a 503.
    """

    def __init__(self) -> None:
        self.comments: dict[int, str] = {}
        self.strangers: set[int] = set()
        self.edits = self.down = 0
        self.read_only = False
        self.address = ""

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        parts = urlsplit(path)
        match = GITHUB.fullmatch(parts.path) or GITLAB.fullmatch(parts.path)
        if (method, parts.path) == ("GET", "/user"):
            return 200, {"id": OURS}
        allowed = (headers.get("Authorization"), headers.get("PRIVATE-TOKEN"))
        if match is None:
            return 404, {"message": "Not Found"}
        if f"Bearer {TOKEN}" not in allowed and TOKEN not in allowed:
            return 401, {"message": "Unauthorized"}
        if self.down:
            self.down -= 1
            return 503, {"message": "later"}
        if method == "GET":
            asked = parse_qs(parts.query)
            size, page = int(asked["per_page"][0]), int(asked["page"][0])
            rows = [self._row(key) for key in self.comments]
            return 200, rows[(page - 1) * size : page * size]
        if self.read_only:
            return 403, {"message": "Resource not accessible by integration"}
        text = json.loads(body)["body"]
        if method == "POST":
            number = len(self.comments) + 1
        elif method == ("PATCH" if parts.path.startswith("/repos") else "PUT"):
            number = int(match["id"])
            self.edits += 1
        else:
            return 405, {}
        self.comments[number] = text
        return 200, {"id": number, "body": text}

    def _row(self, key: int) -> dict[str, Any]:
        by = OURS + (key in self.strangers)
        return {
            "id": key, "body": self.comments[key], "author": {"id": by},
            "user": {"type": "Bot" if by == OURS else "User"}, "author_association": "NONE",
        }  # fmt: skip


@contextmanager
def forge() -> Iterator[Forge]:
    there = Forge()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            code, found = there.answer(self.command, self.path, self.headers, self.rfile.read(size))
            data = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    there.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield there
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
