"""Sandboxes: create, get, list, delete, and their relations."""

from __future__ import annotations

import asyncio

from aiohttp import web

from . import bodies, lifecycle, timers, warm_pools
from .asking import body_of
from .creation import FIELDS, new_sandbox
from .errors import CHANGING, conflict, not_found
from .query import page_of
from .state import Sandbox, World

SETTLED = ("started", "error", "build_failed", "destroyed")


def find(world: World, request: web.Request, *, destroyed: bool = False) -> Sandbox:
    """By id or name. A destroyed one is found by id alone, and only while it is readable."""
    info = request.match_info
    asked = info.get("sandboxIdOrName") or info["sandboxId"]
    found = world.sandbox(asked)
    if found is None or (
        found.state == "destroyed" and not (destroyed and _readable(world, found))
    ):
        raise not_found(f"Sandbox with ID or name {asked} not found")
    return found


def find_settled(world: World, request: web.Request) -> Sandbox:
    """One that is not in the midst of a change."""
    found = find(world, request)
    if found.changing:
        raise conflict(CHANGING)
    return found


def _readable(world: World, sandbox: Sandbox) -> bool:
    since_s = sandbox.spot_evicted_at_s or sandbox.queue_timed_out_at_s
    return since_s is not None and world.clock.now_s() - since_s <= timers.READABLE_S


def shown(world: World, sandbox: Sandbox) -> web.Response:
    return web.json_response(bodies.sandbox(world, sandbox), dumps=bodies.text)


def routes(world: World) -> list[web.RouteDef]:
    async def create(request: web.Request) -> web.Response:
        wanted = await body_of(request, **FIELDS)
        claimed = warm_pools.claim(world, wanted)
        if claimed is not None:
            return shown(world, claimed)
        sandbox = new_sandbox(world, wanted)
        lifecycle.announce(world, sandbox)
        lifecycle.begin(world, sandbox, "started", lifecycle.create(world, sandbox))
        await _held(world, sandbox)
        return shown(world, sandbox)

    async def get(request: web.Request) -> web.Response:
        return shown(world, find(world, request, destroyed=True))

    async def listing(request: web.Request) -> web.Response:
        return web.json_response(page_of(world, request.query))

    async def delete(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        if sandbox.changing:
            raise conflict(CHANGING)
        lifecycle.give_name_up(world, sandbox)
        lifecycle.enter(world, sandbox, "destroying")
        lifecycle.begin(world, sandbox, "destroyed", lifecycle.destroy(world, sandbox))
        return shown(world, sandbox)

    async def forks(request: web.Request) -> web.Response:
        parent = find(world, request)
        gone = request.query.get("includeDestroyed") == "true"
        of = [one for one in world.sandboxes.values() if one.parent_id == parent.id]
        here = [one for one in of if gone or one.state != "destroyed"]
        return web.json_response([bodies.sandbox(world, one) for one in here])

    async def parent(request: web.Request) -> web.Response:
        above = _ancestors(world, find(world, request))
        if not above:
            raise not_found("Sandbox has no parent")
        return shown(world, above[0])

    async def ancestors(request: web.Request) -> web.Response:
        above = _ancestors(world, find(world, request))
        return web.json_response([bodies.sandbox(world, one) for one in above])

    one = "/api/sandbox/{sandboxIdOrName}"
    return [
        web.post("/api/sandbox", create, name="createSandbox"),
        web.get("/api/sandbox", listing, name="listSandboxes"),
        web.get(one, get, name="getSandbox"),
        web.delete(one, delete, name="deleteSandbox"),
        web.get(f"{one}/forks", forks, name="getSandboxForks"),
        web.get(f"{one}/parent", parent, name="getSandboxParent"),
        web.get(f"{one}/ancestors", ancestors, name="getSandboxAncestors"),
    ]


async def _held(world: World, sandbox: Sandbox) -> None:
    """Answer late, as platforms do that wait for the start; not longer than is set."""
    for_s = world.settings.create_answers_after_s
    if for_s > 0 and sandbox.work is not None:
        await asyncio.wait([sandbox.work], timeout=for_s)


def _ancestors(world: World, sandbox: Sandbox) -> list[Sandbox]:
    above: list[Sandbox] = []
    while sandbox.parent_id is not None:
        sandbox = world.sandboxes[sandbox.parent_id]
        above.append(sandbox)
    return above
