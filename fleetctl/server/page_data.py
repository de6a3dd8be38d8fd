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
import re
import time
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.server.callers import VIEWER
from fleetctl.server.reads import find_working
from fleetctl.server.response_types import (
    ChartItem,
    ComparedCharts,
    CostReply,
    CurveItem,
    NamespaceItem,
    NamespaceList,
    ObjectCharts,
    TaskStates,
)
from fleetctl.server.route_table import ApiCall
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.kinds import kind_of, target_of
from fleetctl.views.objects import View
from fleetctl.views.plotting.charts import Chart, EmptyChart
from fleetctl.views.plotting.curves import STEP, TIME
from fleetctl.views.plotting.gather import (
    ChartRequest,
    CurveOffer,
    draw_curves,
    gather_charts,
    gather_system,
    list_curves,
)
from fleetctl.views.plotting.writers.svg import STYLE, chart_file
from fleetctl.views.spending import open_asking, query_live, query_spent
from fleetctl.views.store_reading import StoreReading, must_find
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

# A drawing of a comparison distinguishes eight curves; the others are there to be chosen.
RUNS_MAX = 32
METRICS_MAX = 8
TASKS_MAX = 10_000  # of one entry
REPORTS_MAX = 200_000  # in memory for one request, some 20 MB
RUN_ENTRY = re.compile(
    r"(?:([\w.-]{1,63})/)?([\w.-]{1,253})(?:@([\w.-]{1,63}))?(?::(\d{1,9})(?:-(\d{1,9}))?)?"
)

ROOT = Path(__file__).parent / "page"
DOCUMENT = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
VIEWS = ("/", "/objects", "/objects/{rest:path}", "/compare", "/graph", "/events", "/plan")
CHART_FILES = (STYLE, STYLE.with_name("chart.js"))  # the same as in a file of `plot -o html`


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


async def list_plots(call: ApiCall) -> ObjectCharts:
    """Draws what `fleetctl plot` draws of an object, each chart as an SVG of its own."""

    def read(reading: StoreReading) -> ObjectCharts:
        seen = find_working(call, reading)
        charts = gather_charts([seen], ChartRequest(rows_max=REPORTS_MAX), reading)
        return {
            "items": [_draw_chart(chart) for chart in charts],
            "system": [_draw_chart(chart) for chart in gather_system([seen], reading)],
        }

    return await call.parts.readers.read(read)


async def compare_plots(call: ApiCall) -> ComparedCharts:
    """Draws the metrics of several objects in one chart a metric, as `fleetctl plot A B` does."""
    entries = [it for it in call.text("runs").split(",") if it]
    metrics = tuple(dict.fromkeys(filter(None, call.request.query_params.getlist("metric"))))
    over = call.text("x") or STEP
    if not 0 < len(entries) <= RUNS_MAX:
        raise UsageError(
            f"`runs` must name 1 to {RUNS_MAX} objects, with commas between them",
            hint="runs=trainingrun/a,trainingrun/b:0-3",
        )
    if over not in (STEP, TIME) or len(metrics) > METRICS_MAX:
        raise UsageError(f"`x` must be {STEP} or {TIME}, and `metric` at most {METRICS_MAX} names")

    def read(reading: StoreReading) -> ComparedCharts:
        views: dict[str, View] = {}
        picks: dict[str, set[int]] = {}
        for text in entries:
            seen, indexes = _find_run(call, text, reading)
            uid = seen.resource.uid
            # An entry without indexes means all units, also beside one that has some.
            if indexes is None or (uid in views and uid not in picks):
                picks.pop(uid, None)
            else:
                picks.setdefault(uid, set()).update(indexes)
            views[uid] = seen
        asked = ChartRequest(
            metrics=metrics, over=over, picks=picks, rows_max=REPORTS_MAX, indexes=None
        )
        offers, names = list_curves(list(views.values()), asked, reading)
        charts = draw_curves(list(views.values()), asked, reading)
        return {
            "items": [_draw_chart(chart) for chart in charts],
            "system": [
                _draw_chart(chart) for chart in gather_system(list(views.values()), reading)
            ],
            "curves": [_offer_document(it) for it in offers],
            "metrics": names,
        }

    return await call.parts.readers.read(read)


def _offer_document(offer: CurveOffer) -> CurveItem:
    row = offer.seen.resource
    return {
        "kind": row.kind,
        "name": row.name,
        "namespace": row.namespace,
        "index": offer.task,
        "unit": offer.unit,
        "picked": offer.picked,
    }


def _find_run(call: ApiCall, text: str, reading: StoreReading) -> tuple[View, range | None]:
    """Returns (an object, the tasks of it that are meant; None for all) of an entry of `runs`:
    `KIND/NAME@NAMESPACE:INDEXES`, of which NAME alone is enough. Raises UsageError or NotFound."""
    found = RUN_ENTRY.fullmatch(text)
    if found is None:
        raise UsageError(
            f"`{text[:80]}` is no entry of `runs`",
            hint="write KIND/NAME, or KIND/NAME@NAMESPACE:0-3",
        )
    word, name, namespace, first, last = found.groups()
    within = namespace or call.namespace
    kinds = [kind_of(word)] if word else [it for it in KINDS.values() if it.runs]
    targets = [target_of(kind, name, within) for kind in kinds]
    for one in targets:
        call.caller.require_kind(one.kind, VIEWER, within)
    seen = next(filter(None, (reading.find(it) for it in targets)), None)
    if seen is None:
        seen = must_find(targets[0], reading)
    if not seen.kind.runs:
        raise NotFound(f"a {seen.kind.name} runs no work")
    if first is None:
        return seen, None
    begin = int(first)
    return seen, range(begin, min(int(last or first), begin + TASKS_MAX) + 1)


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
    paths = [path for path in ROOT.iterdir() if path.suffix in TYPES]
    files = {path.name: _read_file(path) for path in [*paths, *CHART_FILES]}

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
