"""Puts the application together: all routes of the API, one row each, the check of callers, and
errors as data.

`pages`: more routes of Starlette, for pages that a browser opens; they stand behind the same
guard, with the same security headers, and find their caller by `find_caller`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from fleetctl.common.author import AGENT_HEADER, parse_agent
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.common.remote import EXEC_PATH
from fleetctl.server import (
    artifact_streams,
    changes,
    exec_socket,
    file_streams,
    graph_data,
    page_data,
    reads,
    streams,
    system,
    waits,
)
from fleetctl.server.api_metrics import ServerMetrics
from fleetctl.server.callers import (
    ADMIN,
    COOKIE,
    EDITOR,
    VIEWER,
    Caller,
    CallerCheck,
    HttpError,
    ListenAddress,
    TokenIssuer,
    page_token,
)
from fleetctl.server.change_feed import ChangeFeed, ReaderPool
from fleetctl.server.changes import refusal_response
from fleetctl.server.exec_socket import serve_exec
from fleetctl.server.guard import UPLOAD_SORT, RequestGuard
from fleetctl.server.response_types import Changed
from fleetctl.server.route_table import (
    ApiCall,
    ApiRoute,
    QueryParameter,
    ServerParts,
    build_openapi,
)
from fleetctl.stores.access import AccessStore
from fleetctl.stores.read.rows import SORTS

NOBODY = Caller("", "viewer", "-")  # of routes that are open to everybody: it may see nothing

STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
ANY_OBJECT = {"type": "object"}
KEYS = {
    "type": "array",
    "items": STRING,
    "minItems": 1,
    "maxItems": changes.KEYS_MAX,
    "description": "Objects, such as `batchjob/chunks`.",
}

NAMESPACE = QueryParameter(
    "namespace", "The namespace; of lists empty: all that the caller may see."
)
LIMIT = QueryParameter("limit", "How many at most; default 100.", "integer")
CONTINUE = QueryParameter("continue", "`metadata.continue` of the page before.")
PHASE = QueryParameter("phase", "Only these phases, with commas, such as `Failed,Running`.")
FILTER = QueryParameter(
    "filter", "A part of the name, or labels such as `team=rlm,stage!=test`, as `-l` has them."
)
LIST = (
    NAMESPACE,
    LIMIT,
    CONTINUE,
    PHASE,
    FILTER,
    QueryParameter("sort", f"One of {', '.join(SORTS)}; `-` in front: greatest first."),
    QueryParameter("specs", "With the specs, too.", "boolean"),
    QueryParameter("wide", "Cells of the wide table.", "boolean"),
    QueryParameter("watch", "Changes as server-sent events, instead of a list.", "boolean"),
    QueryParameter("since", "With `watch`: after this event, or a list's `metadata.revision`."),
    QueryParameter("name", "With `watch`: of the object with this name alone."),
)
LOGS = (
    NAMESPACE,
    QueryParameter("index", "The log of this task; default 0.", "integer"),
    QueryParameter("attempt", "The log of this attempt; default the newest.", "integer"),
    QueryParameter("node", "The log of this node; default 0.", "integer"),
    QueryParameter("service", "The log of this service beside the task."),
    QueryParameter("offset", "From this byte on.", "integer"),
    QueryParameter("limit", "At most so many bytes.", "integer"),
    QueryParameter("search", "Only lines with this text, in any case, each with its offset."),
    QueryParameter("follow", "As server-sent events, until the attempt ends.", "boolean"),
)


def make_app(
    home: Path,
    listens: ListenAddress,
    pages: Sequence[BaseRoute] = (),
    webhook_secret: bytes = b"",
    issued: TokenIssuer | None = None,
) -> Starlette:
    """Returns the application of one server. webhook_secret: empty: it takes no webhooks. issued:
    the check of tokens that are not its own."""
    parts = ServerParts(
        home,
        AccessStore(home),
        ReaderPool(home),
        ChangeFeed(home),
        ServerMetrics(home),
        webhook_secret,
    )

    @contextlib.asynccontextmanager
    async def live(_: Starlette) -> AsyncIterator[None]:
        feed = asyncio.ensure_future(parts.feed.run())
        try:
            yield
        finally:
            feed.cancel()
            parts.feed.close()
            parts.readers.close()

    app = Starlette(
        routes=[_mount_exec(parts), *(_mount_route(it, parts) for it in ROUTES), *pages],
        lifespan=live,
        middleware=[Middleware(RequestGuard, listens=listens)],
        exception_handlers={404: _answer_missing, 405: _answer_missing},
    )
    app.state.parts = parts
    app.state.openapi = cache(partial(build_openapi, ROUTES))
    app.state.callers = CallerCheck(parts.access, listens, issued)
    return app


async def find_caller(request: HTTPConnection) -> Caller:
    """Returns who sends a request. Raises HttpError 401."""
    check: CallerCheck = request.app.state.callers
    caller = await check.find(
        request.headers,
        request.cookies,
        peer=request.scope["state"].get("peer"),
        address=request.scope["state"].get("address", ""),
        now_s=SystemClock().now_s(),
    )
    agent = parse_agent(request.headers.get(AGENT_HEADER, ""))
    return replace(caller, agent=agent) if agent else caller


def _mount_route(route: ApiRoute, parts: ServerParts) -> Route:
    async def answer(request: Request) -> Response:
        began_s = time.monotonic()
        response = await _handle_request(route, request, parts)
        took_s = time.monotonic() - began_s
        parts.metrics.note_http(route.whole_path, route.method, response.status_code, took_s)
        return response

    return Route(route.whole_path, answer, methods=[route.method])


def _mount_exec(parts: ServerParts) -> WebSocketRoute:
    async def answer(websocket: WebSocket) -> None:
        try:
            caller = await find_caller(websocket)
            if caller.by_cookie:
                raise HttpError(403, "a page enters no task; the command line does, with a token")
            caller.require(EDITOR)
            await serve_exec(websocket, caller, parts)
        except FleetctlError as error:
            await websocket.send_denial_response(refusal_response(error))

    return WebSocketRoute(EXEC_PATH, answer)


async def _handle_request(
    route: ApiRoute,
    request: Request,
    parts: ServerParts,
) -> Response:
    try:
        caller = NOBODY
        if route.role is not None:
            caller = await find_caller(request)
            if caller.by_cookie and route.method != "GET":
                check_page_token(request)
            caller.require(route.role)
        made = await route.handler(ApiCall(request, caller, parts))
    except FleetctlError as error:
        return refusal_response(error)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it
    if isinstance(made, Response):
        return made
    return Response(
        json.dumps(made, separators=(",", ":"), ensure_ascii=False), media_type=route.sort
    )


def check_page_token(request: Request) -> None:
    """Raises HttpError where a change that a browser's cookie allows does not come from a page of
    ours: only those can read the cookie's twin and send it as a header."""
    given = request.headers.get("x-csrf-token", "")
    if not hmac.compare_digest(given, page_token(request.cookies.get(COOKIE, ""))):
        raise HttpError(403, "the header X-CSRF-Token is missing or wrong")


async def _answer_missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"there is no `{request.method} {request.url.path[:200]}`"
    hint = "/api/v1/openapi.json lists what there is"
    document = {"ok": False, "code": 4, "errors": [message], "hint": hint}
    # `Allow` of a 405 names the methods that the path has.
    return JSONResponse(document, status, headers=getattr(error, "headers", None))


def _body_schema(
    properties: Mapping[str, object],
    *required: str,
) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": list(required)}


MANIFESTS = {
    "manifest": {"type": "string", "description": "YAML with at least one manifest."},
    "documents": {
        "type": "array",
        "description": "Instead of `manifest`: texts with their names.",
        "items": _body_schema(
            {"path": STRING, "text": STRING, "role": STRING, "sent": ANY_OBJECT}, "text"
        ),
    },
    "namespace": {"type": "string", "description": "The namespace of manifests that name none."},
    "applyset": STRING,
    "prune": BOOLEAN,
    "maxPrune": STRING,
    "takeOver": BOOLEAN,
    "allowMissing": BOOLEAN,
}
PLAN = {
    **MANIFESTS,
    "byLimits": {
        "type": "boolean",
        "description": "Estimate costs by timeouts alone, not by past runs: the most there may be.",
    },
    "report": {"type": "boolean", "description": "With `report`, what a command line shows."},
    "diff": {"type": "boolean", "description": "With `diff`, the lines of `fleetctl diff`."},
    "strict": {
        "type": "boolean",
        "description": "Refuse what is missing and may come later, as an apply now would.",
    },
}
APPLY = {
    **MANIFESTS,
    "yes": {"type": "boolean", "description": "Running work or data may be lost."},
    "dryRun": BOOLEAN,
    "rollout": {"enum": ["", "Replace", "FinishRunning"]},
    "keepFinished": BOOLEAN,
    "rerun": BOOLEAN,
    "override": BOOLEAN,
    "env": {
        "type": "object",
        "description": "Values of the variables that the answer `needEnv` names.",
        "additionalProperties": STRING,
    },
}
OBJECTS = {"keys": KEYS, "namespace": STRING, "override": BOOLEAN}
RETRY = {
    **OBJECTS,
    "which": {"enum": ["failed", "index", "from", "all"]},
    "indexes": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "description": "Pairs of a first and a last index.",
    },
    "names": {"type": "array", "items": STRING},
    "only": BOOLEAN,
    "yes": BOOLEAN,
}

WAIT = {
    "keys": {**KEYS, "maxItems": waits.KEYS_MAX},
    "namespace": STRING,
    **waits.FIELDS,
}


def _verb_route(
    verb: str,
    summary: str,
    body: Mapping[str, object],
    *required: str,
    sends: str = "",
    fixed: Mapping[str, object] | None = None,
) -> ApiRoute:
    """Returns the route of a verb on objects. sends: the controller's word for it."""
    fields = [name for name in body if name not in ("keys", "namespace")]
    handler = changes.make_verb(sends or verb, fields, fixed)
    return ApiRoute(
        "POST",
        verb,
        handler,
        summary,
        EDITOR,
        body=_body_schema(body, "keys", *required),
        reply=Changed,
    )


EACH = {"each": True}  # a refused object leaves the others their turn

ROUTES = (
    ApiRoute("GET", "openapi.json", system.show_openapi, "This document.", None),
    ApiRoute("GET", "whoami", system.show_caller, "The caller, with the role and the namespace."),
    ApiRoute("GET", "kinds", reads.list_kinds, "The kinds, and the columns of their tables."),
    ApiRoute(
        "GET", "objects", streams.list_or_watch_all, "Objects of all kinds, or their changes.",
        parameters=LIST,
    ),
    ApiRoute(
        "GET", "events", reads.list_all_events, "Events of all objects, the oldest first.",
        parameters=(NAMESPACE, LIMIT),
    ),
    ApiRoute(
        "GET", "graph", graph_data.show_graph,
        "Objects with a link, the links, and a position for each in a drawing from left to right.",
        parameters=(
            NAMESPACE,
            QueryParameter(
                "of", "Only `KIND/NAME`, with all that comes before it and all that comes after."
            ),
            QueryParameter("kind", "Only of this kind, and linked ones."),
            PHASE, FILTER,
            QueryParameter("limit", "How many objects at most; default 200.", "integer"),
        ),
    ),
    ApiRoute(
        "GET", "namespaces", page_data.list_namespaces,
        "The namespaces that the caller may see, with the number of their objects.",
    ),
    ApiRoute(
        "GET", "cost", page_data.show_cost,
        "USD spent since the day began (UTC), and what live work costs an hour.",
        parameters=(NAMESPACE,),
    ),
    ApiRoute(
        "GET", "audit", system.list_audit,
        "The changes, and readings of logs, with their users.", ADMIN,
        (
            NAMESPACE,
            QueryParameter("user", "Only of this user."),
            QueryParameter("since", "Seconds since the epoch.", "number"),
            LIMIT,
        ),
    ),
    ApiRoute(
        "GET", "rows/{query}", reads.read_rows,
        "Rows as the command line reads them, a JSON value a line; may grow with each version.",
        parameters=(QueryParameter("args", "Arguments, a JSON object."),),
        sort="application/x-ndjson",
    ),
    ApiRoute(
        "GET", "run-logs/{run}", reads.read_run_log,
        "Output of a run, by its name, as the command line reads it.",
        parameters=LOGS[3:7], sort="application/octet-stream",
    ),
    ApiRoute(
        "GET", "run-outputs/{run}", artifact_streams.read_outputs,
        "The kept outputs of a run, a JSON list a line; with `path` that one.",
        parameters=(
            QueryParameter("path", "Sends this output."),
            QueryParameter("offset", "From this byte on.", "integer"),
        ),
        sort=file_streams.BYTES,
    ),
    ApiRoute(
        "GET", "volume-files/{name}", file_streams.read_volume,
        "Files of a volume, a JSON list a line; with `content` the file at `path`.",
        parameters=(
            NAMESPACE,
            QueryParameter("path", "From the volume's top."),
            QueryParameter("recursive", "All files below it.", "boolean"),
            QueryParameter("content", "Sends the file.", "boolean"),
            QueryParameter("offset", "From this byte on.", "integer"),
            QueryParameter("bytes", "Its size, as listed.", "integer"),
            QueryParameter("size", "The bytes of all files.", "boolean"),
        ),
        sort=file_streams.BYTES,
    ),
    ApiRoute(
        "POST", "volume-files/{name}", file_streams.write_volume,
        "Writes contents that were sent into a volume, or removes a file there.", EDITOR,
        parameters=(NAMESPACE,),
        body=_body_schema({"files": ANY_OBJECT, "remove": STRING, "recursive": BOOLEAN}),
    ),
    ApiRoute(
        "GET", "exec-channel", exec_socket.show_channel,
        "The abilities of a command beside a run: a terminal, bytes, and with `port` a link. The"
        " command itself is a websocket at `/api/v1/exec`, with the same `run` and `node`.", EDITOR,
        (
            QueryParameter("run", "The name of the attempt."),
            QueryParameter("node", "The index of its machine; default 0.", "integer"),
            QueryParameter("port", "A port of its sandbox.", "integer"),
        ),
    ),
    ApiRoute(
        "GET", "plots", page_data.compare_plots,
        "The metrics of several objects in one chart, as an SVG; their curves and metrics.",
        parameters=(
            NAMESPACE,
            QueryParameter(
                "runs", "With commas: `KIND/NAME`, or `KIND/NAME@NAMESPACE:0-3` for some tasks."
            ),
            QueryParameter("metric", "A metric; default the first few that were reported."),
            QueryParameter("x", "The axis: `step` (default), or `time`."),
        ),
    ),
    ApiRoute(
        "GET", "{plural}", streams.list_or_watch, "The objects of a kind, or their changes.",
        parameters=LIST,
    ),
    ApiRoute(
        "GET", "{plural}/{name}", reads.get_object, "An object in full.", parameters=(NAMESPACE,)
    ),
    ApiRoute(
        "GET", "{plural}/{name}/tasks", reads.list_tasks,
        "The tasks of an object, or with `index` all attempts of one.",
        parameters=(
            NAMESPACE, LIMIT, CONTINUE, PHASE,
            QueryParameter("queued", "Also those that have not begun.", "boolean"),
            QueryParameter("index", "All attempts of this task.", "integer"),
        ),
    ),
    ApiRoute(
        "GET", "{plural}/{name}/results", reads.list_results, "Lists the results of its tasks.",
        parameters=(NAMESPACE, LIMIT, CONTINUE, PHASE),
    ),
    ApiRoute(
        "GET", "{plural}/{name}/artifacts", artifact_streams.list_kept,
        "Lists the kept outputs of its tasks; `run-outputs/{run}` sends one.",
        parameters=(
            NAMESPACE, LIMIT, CONTINUE, QueryParameter("index", "Those of this task.", "integer"),
        ),
    ),
    ApiRoute(
        "GET", "{plural}/{name}/states", page_data.list_states,
        "The state of each task as one letter, in the order of their indexes.",
        parameters=(NAMESPACE,),
    ),
    ApiRoute(
        "GET", "{plural}/{name}/plots", page_data.list_plots,
        "The charts of `fleetctl plot`, each as an SVG.", parameters=(NAMESPACE,),
    ),
    ApiRoute(
        "GET", "{plural}/{name}/events", reads.list_events, "Lists its events, oldest first.",
        parameters=(NAMESPACE, LIMIT),
    ),
    ApiRoute(
        "GET", "{plural}/{name}/logs", streams.read_logs,
        "Returns the output of a task: bytes, lines that match, or events as they come. The"
        " header `X-Next-Offset` has the offset of the next request.",
        parameters=LOGS, sort="text/plain",
    ),
    ApiRoute(
        "POST", "plan", changes.plan_manifests,
        "Plans an apply: its changes, providers and cost. Changes nothing.", VIEWER,
        body=_body_schema(PLAN),
    ),
    ApiRoute(
        "POST", "apply", changes.apply_manifests, "Makes the world look like these manifests.",
        EDITOR, body=_body_schema(APPLY), reply=Changed,
    ),
    ApiRoute(
        "POST", "wait", waits.wait_for_goal,
        "Waits until all objects meet a goal, or one no longer can, and shows how far they are."
        " Only the waiting has an end here, never the work.",
        VIEWER, body=_body_schema(WAIT, "keys"),
    ),
    _verb_route("suspend", "Stops work, and starts none until resumed.", OBJECTS, fixed=EACH),
    _verb_route("resume", "Lets suspended work go on.", OBJECTS, fixed=EACH),
    _verb_route("retry", "Lets tasks that ended run again.", RETRY, "which"),
    _verb_route(
        "rerun", "Runs all tasks again, whatever is known.", OBJECTS, sends="retry",
        fixed={"which": "rerun"},
    ),
    _verb_route(
        "delete", "Stops the work of objects and removes them.",
        {**OBJECTS, "yes": BOOLEAN, "cascade": {"enum": ["foreground", "orphan"]}}, fixed=EACH,
    ),
    _verb_route(
        "reconcile", "Makes Sources read their repositories now.", {**OBJECTS, "yes": BOOLEAN},
    ),
    ApiRoute(
        "POST", "create", changes.create_from, "Makes now what a schedule makes.", EDITOR,
        body=_body_schema(
            {"from": STRING, "kind": STRING, "name": STRING, "namespace": STRING}, "from", "kind"
        ),
        reply=Changed,
    ),
    ApiRoute(
        "POST", "query", reads.run_query,
        "Rows of a SELECT over the views of `fleetctl query`, a JSON list a line; the first line"
        " has the columns. Of the caller's namespace alone.",
        VIEWER,
        body=_body_schema(
            {"sql": STRING, "parameters": {"type": "array"},
             "timeoutSeconds": {"type": "number", "maximum": reads.SQL_WAIT_S}},
            "sql",
        ),
        sort="application/x-ndjson",
    ),
    ApiRoute(
        "POST", "scale", changes.set_fields, "Lets more or fewer tasks run at the same time.",
        EDITOR,
        body=_body_schema(
            {"key": STRING, "parallelism": {"type": "integer", "minimum": 0}, "rollout": STRING,
             "yes": BOOLEAN, "override": BOOLEAN},
            "key", "parallelism",
        ),
        reply=Changed,
    ),
    ApiRoute(
        "POST", "set", changes.set_fields, "Changes fields of a stored object.", EDITOR,
        body=_body_schema(
            {"key": STRING, "fields": {"type": "array", "items": STRING},
             "labels": {"type": "object"}, "annotations": {"type": "object"},
             "spec": {"type": "object"}, "generation": {"type": "integer"},
             "rollout": STRING, "yes": BOOLEAN, "override": BOOLEAN},
            "key",
        ),
        reply=Changed,
    ),
    ApiRoute(
        "POST", "uploads/missing", file_streams.list_lacking,
        "Which contents of files are not on the server, each with the bytes that have arrived.",
        EDITOR, body=_body_schema({"contents": ANY_OBJECT}, "contents"),
    ),
    ApiRoute(
        "POST", "uploads/contents", file_streams.take_contents,
        "Takes pieces of contents, each after a line `DIGEST SIZE OFFSET LENGTH`.",
        EDITOR, body=STRING, body_sort=UPLOAD_SORT,
    ),
    ApiRoute(
        "POST", "uploads/tree", file_streams.make_tree,
        "Makes a directory of contents, which documents name by `sent`.",
        EDITOR,
        body=_body_schema(
            {name: {"type": "array"} for name in ("files", "links", "directories")}, "files"
        ),
    ),
    ApiRoute(
        "POST", "webhooks/push", changes.receive_push,
        "Makes the Sources of a repository read it now, for a push at GitHub or GitLab. The sender"
        " has the secret of `--webhook-secret`, and no token.", None,
        body=_body_schema({"ref": STRING, "repository": ANY_OBJECT, "project": ANY_OBJECT}),
        reply=Changed,
    ),
    ApiRoute(
        "GET", "/healthz", system.show_health, "200 while the server answers.", None,
        sort="text/plain",
    ),
    ApiRoute(
        "GET", "/readyz", system.show_readiness, "200 where the store can be read.", None,
        sort="text/plain",
    ),
    ApiRoute(
        "GET", "/metrics", system.show_metrics, "Metrics for Prometheus.", VIEWER,
        sort="text/plain",
    ),
)  # fmt: skip
