"""Warm pools: sandboxes that are started ahead, and handed over at a create that fits."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from . import bodies, lifecycle, timers
from .asking import body_of, text, whole
from .creation import DEFAULT_SNAPSHOT, check_name, check_region, new_sandbox, snapshot_for
from .errors import Refused, bad_request, not_found
from .state import Sandbox, WarmPool, World, new_id, text_map

# A create that asks for any of these needs a sandbox of its own.
SPECIAL = ("buildInfo", "env", "volumes", "secrets", "user", "linkedSandbox", "kvm", "spot")


def routes(world: World) -> list[web.RouteDef]:
    async def listing(request: web.Request) -> web.Response:
        return web.json_response([bodies.warm_pool(world, p) for p in world.warm_pools.values()])

    async def create(request: web.Request) -> web.Response:
        wanted = await body_of(request, snapshot=text, target=text, pool=whole)
        snapshot = snapshot_for(world, str(wanted.get("snapshot") or ""))
        now_s = world.clock.now_s()
        size, target = _size(wanted, least=1), check_region(wanted.get("target"))
        pool = WarmPool(new_id(), snapshot.name, target, size, now_s, now_s)
        world.warm_pools[pool.id] = pool
        refill(world)
        return web.json_response(bodies.warm_pool(world, pool), status=201)

    async def update(request: web.Request) -> web.Response:
        pool, wanted = find(request), await body_of(request, snapshot=text, target=text, pool=whole)
        pool.pool, pool.updated_at_s = _size(wanted, least=0), world.clock.now_s()
        refill(world)
        return web.json_response(bodies.warm_pool(world, pool))

    async def delete(request: web.Request) -> web.Response:
        pool = find(request)
        pool.pool = 0
        refill(world)
        del world.warm_pools[pool.id]
        return web.Response(status=204)

    def find(request: web.Request) -> WarmPool:
        found = world.warm_pools.get(request.match_info["id"])
        if found is None:
            raise not_found(f"Warm pool with ID {request.match_info['id']} not found")
        return found

    return [
        web.get("/api/warm-pools", listing, name="listWarmPools"),
        web.post("/api/warm-pools", create, name="createWarmPool"),
        web.patch("/api/warm-pools/{id}", update, name="updateWarmPool"),
        web.delete("/api/warm-pools/{id}", delete, name="deleteWarmPool"),
    ]


def on_change(world: World, sandbox: Sandbox) -> None:
    if sandbox.state == "destroyed" and world.warm_pools:
        refill(world)


def refill(world: World) -> None:
    """Start what a pool lacks, destroy what it has too many of."""
    for pool in world.warm_pools.values():
        members = [one for one in world.present() if one.warm_pool_id == pool.id]
        for one in members[pool.pool :]:
            if one.desired != "destroyed":
                timers.expire(world, one)
        for _ in range(pool.pool - len(members)):
            if not _start_one(world, pool):
                return


def claim(world: World, wanted: dict[str, Any]) -> Sandbox | None:
    """A started member of a pool that fits, made the caller's own."""
    if any(wanted.get(key) for key in SPECIAL):
        return None
    name = wanted.get("snapshot") or DEFAULT_SNAPSHOT
    for one in world.present():
        if one.warm_pool_id and one.state == "started" and not one.changing:
            fits = one.snapshot == name and one.region == (wanted.get("target") or one.region)
            if fits:
                return _hand_over(world, one, wanted)
    return None


def _hand_over(world: World, one: Sandbox, wanted: dict[str, Any]) -> Sandbox:
    if wanted.get("name"):
        check_name(world, wanted["name"])
        lifecycle.give_name_up(world, one)
        one.name = wanted["name"]
        world.names[one.name] = one.id
    one.labels, one.warm_pool_id = text_map(wanted.get("labels")), None
    one.public = bool(wanted.get("public"))
    for key, field in _INTERVALS.items():
        setattr(one.intervals, field, wanted.get(key, getattr(one.intervals, field)))
    now_s = world.clock.now_s()
    ttl = wanted.get("ttlMinutes") or 0
    one.destroy_at_s = now_s + ttl * 60 if ttl else None
    one.created_at_s = one.updated_at_s = one.activity_at_s = now_s
    world.tell(one, one.state)
    refill(world)
    return one


_INTERVALS = {
    "autoStopInterval": "stop",
    "autoArchiveInterval": "archive",
    "autoDeleteInterval": "delete",
}


def _start_one(world: World, pool: WarmPool) -> bool:
    try:
        one = new_sandbox(world, {"snapshot": pool.snapshot, "target": pool.target})
    except Refused:  # the quota is used up; tried again when a sandbox is gone
        return False
    one.warm_pool_id = pool.id
    lifecycle.announce(world, one)
    lifecycle.begin(world, one, "started", lifecycle.create(world, one))
    return True


def _size(wanted: dict[str, Any], *, least: int) -> int:
    size = wanted.get("pool")
    if not isinstance(size, int) or size < least:
        raise bad_request(f"pool must not be less than {least}")
    return size
