"""Sends the page: the files of `page/`, and the same document under the address of each view. It
holds no data, so that it needs no token; what it shows comes from the API, with the caller's own
rights.

The page is plain modules of JavaScript, without a library and without a build: a Python developer
changes a file and reloads. Charts are drawn here, by the code of `fleetctl plot`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

ROOT = Path(__file__).parent / "page"
DOCUMENT = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
VIEWS = ("/", "/objects", "/objects/{rest:path}", "/events", "/plan")


class PageFile(NamedTuple):
    """A file of the page. etag: of its content, so that a browser keeps what did not change."""

    content: bytes
    type: str
    etag: str


def page_routes() -> list[BaseRoute]:
    """Returns the routes of the page. Reads its files once."""
    files = {path.name: _read_file(path) for path in ROOT.iterdir() if path.suffix in TYPES}

    async def show_view(request: Request) -> Response:
        return _serve_file(request, files[DOCUMENT])

    async def show_file(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None:
            return Response("there is no such file\n", 404, media_type="text/plain")
        return _serve_file(request, found)

    views = [Route(path, show_view, methods=["GET"]) for path in VIEWS]
    return [*views, Route("/static/{name}", show_file, methods=["GET"])]


def _read_file(path: Path) -> PageFile:
    content = path.read_bytes()
    return PageFile(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _serve_file(request: Request, file: PageFile) -> Response:
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers={**headers, "content-type": file.type})
