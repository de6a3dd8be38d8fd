"""The controller's side of the gateway: endpoints, grants and caps in, usage and health out."""

import asyncio
import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from functools import partial
from typing import Any

from aiohttp import web

from fleetctl.common.tokens import gateway_token
from fleetctl.gateway.client.gateway_client import SharedCap
from fleetctl.gateway.control.batch_report import batches_of
from fleetctl.gateway.control.health import ServerProbes, is_there
from fleetctl.gateway.control.times import compute_percentiles
from fleetctl.gateway.endpoints import CallerGrant, GatewayEndpoint, comparable_fields
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.keeping.call_ledger import COUNTS, UsageKey

WAIT_MAX_S = 10.0
USAGE_GAP_S = 0.2  # between two answers with usage
FORGET_EACH_S = 3600.0
_PRIVATE = ("reserved_in", "reserved_out", "tree", "seq", "at_s")
_USD = ("usd", "reserved_usd")


class ControlApi:
    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._probes = ServerProbes(state.client)
        self._told_at_s = -math.inf  # of usage
        self._forgot_at_s = -math.inf
        self._tokens: dict[str, str] = {}  # by run; a token is worked out once a run
        # The version of the grants. A process before this one had another.
        self._epoch = secrets.token_hex(8)
        self._changes = 0
        self._served = False
        # runs without a grant at the last look, among those with answers
        self._without: Set[str] = frozenset()
        state.granted_runs = self._tokens.keys()

    async def put_endpoints(self, request: web.Request) -> web.Response:
        state = self._state
        previous = self._state.endpoints
        state.leaving = False  # somebody needs it again
        found: dict[tuple[str, str], GatewayEndpoint] = {}
        for row in (await request.json())["endpoints"]:
            name = (row["namespace"], row["name"])
            endpoint = previous.get(name)
            if endpoint is None:
                endpoint = GatewayEndpoint(row, partial(is_there, state.client))
            elif endpoint.told != comparable_fields(row) and not row.get("stays"):
                endpoint.update(row)
            found[name] = endpoint
        state.endpoints = found
        for name in previous.keys() - found.keys():
            previous[name].end()
        self._served = True
        self._know()
        return web.json_response({})

    def _know(self) -> None:
        """Opens the data side once endpoints and grants are known: before, a caller with a grant
        would be refused for an endpoint that is not there.
        """
        if self._served and self._changes:
            self._state.granted.set()

    async def put_grants(self, request: web.Request) -> web.Response:
        """Stores all grants, or with `since` the changes after that version. A reply without a
        version means that no change was stored: the gateway holds other grants.
        """
        state, body = self._state, await request.json()
        if "since" in body and body["since"] != self._version:
            return web.json_response({"version": ""})
        grants = [_read_grant(row) for row in body["grants"]]
        over = set(body["ended"]) if "since" in body else self._tokens.keys() - _list_runs(grants)
        for run in over:
            state.grants.pop(self._tokens.pop(run, ""), None)
        for grant in grants:
            token = self._tokens.get(grant.run)
            if token is None:
                token = self._tokens[grant.run] = gateway_token(state.key, grant.run)
            state.grants[token] = grant
        self._changes += 1
        state.caps = [SharedCap(tuple(it["uids"]), it["usd"]) for it in body["caps"]]
        state.numbered.cancel(over)
        self._know()
        state.money.fire()
        held = state.grants.values()
        if time.monotonic() - self._forgot_at_s > FORGET_EACH_S:
            self._forgot_at_s = time.monotonic()
            state.ledger.forget(time.time(), {run for it in held for run in (it.run, it.tree)})
            # One odd message of the controller must not lose the work of hours.
            without = state.answers.runs() - state.granted_runs
            state.answers.forget_runs(without & self._without)
            self._without = without
        uids = {it.uid for it in held}.union(*(it.uids for it in state.caps))
        totals = {uid: state.ledger.usd_of(uid) for uid in uids}
        return web.json_response({"version": self._version, "totals": totals})

    @property
    def _version(self) -> str:
        return f"{self._epoch}-{self._changes}"

    async def usage(self, request: web.Request) -> web.Response:
        ledger = self._state.ledger
        after = int(request.query.get("after", "0"))
        until_s = time.monotonic() + min(WAIT_MAX_S, float(request.query.get("wait", "0")))
        if after > ledger.seq:
            after = 0  # of a ledger that is gone
        while ledger.seq <= after and (left_s := until_s - time.monotonic()) > 0:
            await ledger.changed.wait(left_s)
        await ledger.durable()
        pause_s = min(until_s, self._told_at_s + USAGE_GAP_S) - time.monotonic()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._told_at_s = time.monotonic()
        seq = ledger.seq
        rows = ledger.since(after)
        return web.json_response({"seq": seq, "rows": [self._usage_row(row) for row in rows]})

    def _usage_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        key = UsageKey(*(row[name] for name in UsageKey._fields))
        shown = {
            name: int(value) if name in COUNTS and name not in _USD else value
            for name, value in row.items()
            if name not in _PRIVATE
        }
        return shown | compute_percentiles(self._state.times.get(key))

    async def health(self, request: web.Request) -> web.Response:
        max_age_s = float(request.query.get("max_age", "0"))
        every = self._state.endpoints.values()
        rows = await asyncio.gather(*(self._probes.health(it, max_age_s) for it in every))
        for row in rows:
            row |= batches_of(self._state, (row["namespace"], row["name"]))
        return web.json_response({"endpoints": rows})

    async def bye(self, _: web.Request) -> web.Response:
        """Ends the gateway once the batches that servers work on have ended."""
        self._state.leaving = True
        if not self._state.batches:
            self._state.ended.set()
        return web.json_response({})

    async def ping(self, _: web.Request) -> web.Response:
        return web.json_response({"pid": os.getpid()})


def control_app(state: GatewayState) -> web.Application:
    @web.middleware
    async def heard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        state.heard = True
        return await handler(request)

    app, control = (
        web.Application(client_max_size=64 * 2**20, middlewares=[heard]),
        ControlApi(state),
    )
    app.router.add_get("/ping", control.ping)
    app.router.add_put("/endpoints", control.put_endpoints)
    app.router.add_put("/grants", control.put_grants)
    app.router.add_get("/usage", control.usage)
    app.router.add_get("/health", control.health)
    app.router.add_post("/bye", control.bye)
    return app


def _list_runs(grants: Iterable[CallerGrant]) -> set[str]:
    return {it.run for it in grants}


def _read_grant(row: Mapping[str, Any]) -> CallerGrant:
    return CallerGrant(
        row["run"],
        row["tree"],
        row["uid"],
        f"{row['namespace']}/{row['object']}",
        row["namespace"],
        tuple(row["endpoints"]),
    )
