"""Sends the page and answers what it alone asks for: the files of `page/`, states of all tasks in
one text, charts, costs, names.

The page's files hold no data, so that they need no token; the data that the page shows comes from
the API, with the caller's own rights. The page is plain modules of JavaScript, without a library
and without a build: a Python developer changes a file and reloads. Charts are drawn here, by the
code of `fleetctl plot`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fleetctl.server.reads import find_working
from fleetctl.server.response_types import (
    ChartItem,
    ChartList,
    CostReply,
    NamespaceItem,
    NamespaceList,
    TaskStates,
)
from fleetctl.server.route_table import ApiCall
from fleetctl.views.plotting.charts import Chart, EmptyChart
from fleetctl.views.plotting.gather import ChartRequest, gather_charts
from fleetctl.views.plotting.writers.svg import chart_file
from fleetctl.views.spending import open_asking, query_live, query_spent
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import with_queued

DAY_S = 86_400
# One letter a task: 100,000 of them are 100 kB, and a sentence each would be 20 MB.
LETTERS = {
    "Succeeded": "s",
    "Cached": "c",
    "Running": "r",
    "Starting": "b",
    "Stopping": "b",
    "Failed": "f",
    "Lost": "f",
    "Refused": "f",
    "Stopped": "x",
    "Cancelled": "x",
    "Outdated": "o",
}
NOT_BEGUN = "q"

ROOT = Path(__file__).parent / "page"
DOCUMENT = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
VIEWS = ("/", "/objects", "/objects/{rest:path}", "/events", "/plan")


async def list_namespaces(call: ApiCall) -> NamespaceList:
    """Lists the namespaces that the caller may see, with the number of objects of each kind."""
    within = call.caller.namespaces("")

    def read(reading: StoreReading) -> NamespaceList:
        found = reading.namespaces()
        items: list[NamespaceItem] = [
            {"name": name, "objects": counts}
            for name, counts in sorted(found.items())
            if not within or name in within
        ]
        return {"items": items}

    return await call.parts.readers.read(read)


async def list_states(call: ApiCall) -> TaskStates:
    """Shows the state of each task as one letter, by index; `indexes` where these have gaps."""

    def read(reading: StoreReading) -> TaskStates:
        seen = find_working(call, reading)
        letters = []
        indexes = []
        for one in with_queued(reading.tasks(seen), seen):
            if one.wanted:
                letters.append(LETTERS.get(one.shown, NOT_BEGUN))
                indexes.append(one.run.index)
        gaps = indexes != list(range(len(indexes)))
        return {"letters": "".join(letters), "indexes": indexes if gaps else None}

    return await call.parts.readers.read(read)


async def list_plots(call: ApiCall) -> ChartList:
    """Draws what `fleetctl plot` draws of an object, each chart as an SVG of its own."""

    def read(reading: StoreReading) -> ChartList:
        seen = find_working(call, reading)
        charts = gather_charts([seen], ChartRequest((), (), None, "step"), reading)
        return {"items": [_draw_chart(chart) for chart in charts]}

    return await call.parts.readers.read(read)


def _draw_chart(chart: Chart) -> ChartItem:
    if isinstance(chart, EmptyChart):
        return {"title": chart.title, "note": chart.why, "svg": ""}
    return {"title": chart.title, "note": chart.note, "svg": chart_file(chart)}


async def show_cost(call: ApiCall) -> CostReply:
    """Shows what was spent since the day began (UTC), and what live work costs an hour, in USD."""
    within = call.caller.namespaces(call.text("namespace"))
    namespace = within[0] if within else None
    return await asyncio.to_thread(_query_cost, call, namespace)


def _query_cost(call: ApiCall, namespace: str | None) -> CostReply:
    now_s = time.time()
    with open_asking(call.parts.home) as asking:
        groups = query_spent(asking, "kind", since_s=now_s - now_s % DAY_S, namespace=namespace)
        live = query_live(asking, namespace)
    return {
        "today": sum(it.usd or 0.0 for it in groups),
        "perHour": live.usd_per_h,
        "unpriced": live.unpriced,
        "kinds": {str(it.key): it.usd for it in groups},
    }


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
