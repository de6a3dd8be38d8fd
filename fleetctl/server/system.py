"""Answers what concerns the server itself: probes, metrics, the caller, the audit, the OpenAPI
document. Called by the routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.responses import PlainTextResponse, Response

from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.text import format_timestamp
from fleetctl.common.version import VERSION
from fleetctl.server.api_metrics import CONTENT_TYPE
from fleetctl.server.callers import ADMIN, VIEWER
from fleetctl.server.response_types import AuditItem, AuditList, CallerReply
from fleetctl.server.route_table import ApiCall
from fleetctl.server.streams import STREAMS
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.stores.access import EVERYWHERE, AuditRow

AUDIT_MAX = 1000


async def show_health(call: ApiCall) -> Response:
    del call
    return PlainTextResponse("ok\n")


async def show_readiness(call: ApiCall) -> Response:
    try:
        await call.parts.readers.read(lambda reading: reading.namespaces())
    except FleetctlError:
        return PlainTextResponse("the store cannot be read\n", 503)
    return PlainTextResponse("ok\n")


async def show_metrics(call: ApiCall) -> Response:
    call.caller.require(VIEWER, EVERYWHERE)
    metrics = call.parts.metrics
    text = await call.parts.readers.read(lambda reading: metrics.render(reading, STREAMS.open))
    return Response(text, media_type=CONTENT_TYPE)


async def show_caller(call: ApiCall) -> CallerReply:
    caller = call.caller
    return {
        "user": caller.user,
        "role": caller.role,
        "namespace": caller.namespace,
        "token": caller.token,
        "version": VERSION,
        "apiVersion": API_VERSION,
    }


async def list_audit(call: ApiCall) -> AuditList:
    within = call.caller.namespaces(call.text("namespace"))
    call.caller.require(ADMIN, within[0] if within else EVERYWHERE)
    limit = max(1, call.number("limit", 100, most=AUDIT_MAX))
    try:
        since_s = float(call.text("since") or 0)
    except ValueError:
        raise UsageError("`since` must be seconds since the epoch") from None
    rows = await asyncio.to_thread(
        call.parts.access.audit,
        since_s=since_s,
        user=call.text("user"),
        namespace=within[0] if within else "",
        limit=limit,
    )
    items = [_describe_act(row) for row in rows]
    return {"apiVersion": API_VERSION, "kind": "List", "items": items}


def _describe_act(row: AuditRow) -> AuditItem:
    return {
        "seq": row.seq,
        "at_s": row.at_s,
        "user": row.user,
        "token": row.token,
        "address": row.address,
        "action": row.action,
        "object": row.object,
        "namespace": row.namespace,
        "code": row.code,
        "at": format_timestamp(row.at_s),
    }


async def show_openapi(call: ApiCall) -> Mapping[str, object]:
    found: Mapping[str, object] = call.request.app.state.openapi()
    return found
