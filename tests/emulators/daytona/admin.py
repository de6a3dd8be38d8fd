"""/admin: what tests ask and order. No key is needed, and nothing here counts as a request.

In-process tests call the same things on `Server.world`.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from aiohttp import web

from . import lifecycle, quotas
from .events import Events
from .state import Sandbox, World


def routes(world: World, events: Events) -> list[web.RouteDef]:
    return [*_looking(world, events), *_faults(world), *_time(world), *_sandboxes(world, events)]


def state(world: World, *, requests: bool = False) -> dict[str, Any]:
    """The ground truth: every sandbox that there ever was, what lives, what was asked."""
    parts = [_truth(one) for one in world.sandboxes.values()]
    volumes = world.volumes.values()
    return {
        "now_s": world.clock.now_s(),
        "sandboxes": parts,
        "live": [one for one in parts if one["pids"]],
        "present": [one for one in parts if one["state"] != "destroyed"],
        "volumes": [{**asdict(one), "directory": str(one.directory)} for one in volumes],
        "snapshots": [
            {"id": one.id, "name": one.name, "state": one.state, "general": one.general}
            for one in world.snapshots.values()
        ],
        "secrets": [{"id": one.id, "name": one.name} for one in world.secrets.values()],
        "builds": [
            {"reference": one.reference, "built": one.image is not None, "error": one.error}
            for one in world.builds.values()
        ],
        "usage": asdict(quotas.usage(world)),
        "requests": dict(world.requests.counts),
        "newest": list(world.requests.newest) if requests else [],
    }


def _truth(one: Sandbox) -> dict[str, Any]:
    box = one.box
    processes = [process.pid for process in box.processes.values()] if box is not None else []
    return {
        "id": one.id,
        "name": one.name,
        "state": one.state,
        "desired": one.desired,
        "labels": one.labels,
        "env": one.env,
        "error_reason": one.error_reason,
        "resources": asdict(one.resources),
        "intervals": asdict(one.intervals),
        "mounts": [asdict(mount) for mount in one.mounts],
        "snapshot": one.snapshot,
        "spot": one.spot,
        "network": asdict(one.network),
        "warm_pool_id": one.warm_pool_id,
        "history": [[change.state, change.at_s] for change in one.history],
        "created_at_s": one.created_at_s,
        "destroyed_at_s": one.destroyed_at_s,
        "destroy_at_s": one.destroy_at_s,
        "open_requests": one.open_requests,
        "pids": [box.pid, *processes] if box is not None and box.alive else [],
        "directory": str(one.directory),
    }


def _looking(world: World, events: Events) -> list[web.RouteDef]:
    async def look(request: web.Request) -> web.Response:
        whole = request.query.get("requests") == "true"
        return web.json_response({**state(world, requests=whole), "clients": events.clients})

    async def forget(request: web.Request) -> web.Response:
        world.requests.counts.clear()
        world.requests.newest.clear()
        return web.Response(status=204)

    async def shown(request: web.Request) -> web.Response:
        return web.json_response(asdict(world.settings))

    async def settings(request: web.Request) -> web.Response:
        try:
            world.settings.change(await request.json())
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            return web.json_response({"unknown": str(error)}, status=400)
        return web.json_response(asdict(world.settings))

    return [
        web.get("/admin/state", look),
        web.delete("/admin/requests", forget),
        web.get("/admin/settings", shown),
        web.patch("/admin/settings", settings),
    ]


def _faults(world: World) -> list[web.RouteDef]:
    async def add(request: web.Request) -> web.Response:
        return await _added(request, world.faults.add)

    async def add_fate(request: web.Request) -> web.Response:
        return await _added(request, world.faults.add_fate)

    async def listing(request: web.Request) -> web.Response:
        return web.json_response(world.faults.described())

    async def remove(request: web.Request) -> web.Response:
        asked = request.match_info.get("id")
        world.faults.remove(int(asked) if asked else None)
        return web.Response(status=204)

    return [
        web.get("/admin/faults", listing),
        web.post("/admin/faults", add),
        web.post("/admin/fates", add_fate),
        web.delete("/admin/faults", remove),
        web.delete("/admin/faults/{id}", remove),
    ]


async def _added(request: web.Request, add: Any) -> web.Response:
    try:
        return web.json_response({"id": add(**await request.json())})
    except (TypeError, ValueError) as error:
        return web.json_response({"problem": str(error)}, status=400)


def _time(world: World) -> list[web.RouteDef]:
    async def clock(request: web.Request) -> web.Response:
        wanted = await request.json()
        if "scale" in wanted:
            world.clock.set_scale(float(wanted["scale"]))
        if "advance_s" in wanted:
            world.clock.advance(float(wanted["advance_s"]))
            await asyncio.sleep(0)
        return web.json_response({"now_s": world.clock.now_s()})

    return [web.post("/admin/clock", clock)]


def _sandboxes(world: World, events: Events) -> list[web.RouteDef]:
    def find(request: web.Request) -> Sandbox:
        found = world.sandbox(request.match_info["id"])
        if found is None:
            raise web.HTTPNotFound
        return found

    async def evict(request: web.Request) -> web.Response:
        await lifecycle.evict(world, find(request))
        return web.Response(status=204)

    async def lose(request: web.Request) -> web.Response:
        wanted = await request.json() if request.can_read_body else {}
        reason, recoverable = wanted.get("reason"), bool(wanted.get("recoverable"))
        await lifecycle.lose(world, find(request), reason, recoverable=recoverable)
        return web.Response(status=204)

    async def pause(request: web.Request) -> web.Response:
        await lifecycle.pause(world, find(request))
        return web.Response(status=204)

    async def cut(request: web.Request) -> web.Response:
        for connection in list(find(request).connections):
            connection.abort()
        return web.Response(status=204)

    async def volume(request: web.Request) -> web.Response:
        found, wanted = world.volume_named(request.match_info["id"]), await request.json()
        if found is None:
            raise web.HTTPNotFound
        found.state, found.error_reason = wanted["state"], wanted.get("reason")
        return web.Response(status=204)

    async def hang_up(request: web.Request) -> web.Response:
        events.hang_up()
        return web.Response(status=204)

    return [
        web.post("/admin/sandboxes/{id}/evict", evict),
        web.post("/admin/sandboxes/{id}/lose", lose),
        web.post("/admin/sandboxes/{id}/cut", cut),
        web.post("/admin/sandboxes/{id}/pause", pause),
        web.post("/admin/volumes/{id}", volume),
        web.post("/admin/events/hang-up", hang_up),
    ]
