"""Snapshots: from an image's name, from a Dockerfile, or from a sandbox; active, inactive, gone."""

from __future__ import annotations

import asyncio
import fnmatch
import math
import re
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from . import bodies, builds
from .asking import Check, body_of, text, texts, whole
from .creation import BUILD_INFO, check_region, resources
from .errors import bad_request, conflict, not_found
from .query import number
from .state import Image, Resources, Snapshot, World, new_id

NAME = re.compile(r"[a-zA-Z0-9_.\-:/]+")
GENERAL = {
    "daytona-small": Resources(1, 1, 3),
    "daytona-medium": Resources(2, 4, 8),
    "daytona-large": Resources(4, 8, 10),
    "daytona-gpu": Resources(4, 16, 50, 1, "H100"),
}
FIELDS: dict[str, Check] = {
    **dict.fromkeys(("name", "imageName", "regionId", "sandboxClass"), text),
    **dict.fromkeys(("cpu", "memory", "disk", "gpu"), whole),
    **dict.fromkeys(("entrypoint", "gpuType"), texts),
    "buildInfo": BUILD_INFO,
}
SETTLE_ROUNDS = 8  # of the event loop
SIZE_GIB = 1.5  # of what is not measured
SORTS = {
    "name": "name",
    "state": "state",
    "createdAt": "created_at_s",
    "lastUsedAt": "created_at_s",
}


def furnish(world: World) -> None:
    """The platform's own, which everybody has."""
    for name, size in GENERAL.items():
        one = _registered(world, name, size)
        one.general, one.state, one.size_gib = True, "active", SIZE_GIB
        one.image_name = f"daytonaio/{name}:1.0.0"
        one.image = Image(one.image_name)
        one.region = "earth" if size.gpu else "us"


def new(world: World, name: str, size: Resources) -> Snapshot:
    """Checked and registered, `pending`."""
    if not NAME.fullmatch(name):
        raise bad_request("Snapshot name is not valid: use letters, digits and any of `_.-:/`")
    if any(one.name == name for one in world.snapshots.values()):
        raise conflict(f'Snapshot with name "{name}" already exists for this organization')
    own = sum(1 for one in world.snapshots.values() if not one.general)
    most = world.settings.quota.snapshots
    if own >= most:
        raise bad_request(f"Snapshot quota exceeded. Maximum allowed: {most}")
    return _registered(world, name, size)


def enter(world: World, one: Snapshot, state: str, reason: str | None = None) -> None:
    one.state, one.error_reason, one.updated_at_s = state, reason, world.clock.now_s()
    if state == "active":
        one.size_gib = one.size_gib or SIZE_GIB


def routes(world: World) -> list[web.RouteDef]:
    def find(request: web.Request) -> Snapshot:
        asked = request.match_info["id"]
        found = world.snapshot_named(asked)
        if found is None:
            raise not_found(f"Snapshot with ID or name {asked} not found")
        return found

    def shown(one: Snapshot) -> web.Response:
        return web.json_response(bodies.snapshot(world, one))

    async def create(request: web.Request) -> web.Response:
        wanted = await body_of(request, **FIELDS)
        one = _described(world, wanted)
        begin(one, _make(world, one))
        if one.build is not None and one.build.image is not None:
            # Built before: it is there when the answer is, as far as its states last no time.
            for _ in range(SETTLE_ROUNDS):
                await asyncio.sleep(0)
        return shown(one)

    async def listing(request: web.Request) -> web.Response:
        return web.json_response(_page(world, request))

    async def get(request: web.Request) -> web.Response:
        return shown(find(request))

    async def remove(request: web.Request) -> web.Response:
        one = find(request)
        if one.general:
            raise bad_request("You cannot delete a general snapshot")
        if one.work is not None:
            one.work.cancel()
        enter(world, one, "removing")
        begin(one, _remove(world, one))
        return web.Response()

    async def activate(request: web.Request) -> web.Response:
        one = find(request)
        if one.state == "active":
            raise bad_request(f"Snapshot {one.name} is already active")
        if one.state != "inactive":
            raise bad_request(f"Snapshot {one.name} cannot be activated: it is {one.state}")
        enter(world, one, "active")
        return shown(one)

    async def deactivate(request: web.Request) -> web.Response:
        one = find(request)
        if one.state != "active":
            raise bad_request(f"Snapshot {one.name} is not active")
        enter(world, one, "inactive")
        return web.Response(status=204)

    def begin(one: Snapshot, work: Coroutine[Any, Any, None]) -> None:
        one.work = asyncio.get_running_loop().create_task(work)

    path = "/api/snapshots/{id}"
    return [
        web.post("/api/snapshots", create, name="createSnapshot"),
        web.get("/api/snapshots", listing, name="getAllSnapshots"),
        web.get(path, get, name="getSnapshot"),
        web.delete(path, remove, name="removeSnapshot"),
        web.post(f"{path}/activate", activate, name="activateSnapshot"),
        web.post(f"{path}/deactivate", deactivate, name="deactivateSnapshot"),
    ]


def _registered(world: World, name: str, size: Resources) -> Snapshot:
    now_s = world.clock.now_s()
    one = Snapshot(new_id(), name, now_s, now_s, resources=size)
    world.snapshots[one.id] = one
    return one


def _described(world: World, wanted: dict[str, Any]) -> Snapshot:
    image, build_info = wanted.get("imageName"), wanted.get("buildInfo")
    if bool(image) == bool(build_info):
        raise bad_request("Either imageName or buildInfo must be given, and not both")
    if image and ":" not in image.rsplit("/", 1)[-1] and "@" not in image:
        raise bad_request("Image name must include a tag (e.g., ubuntu:22.04) or a digest")
    if image and image.endswith(":latest"):
        raise bad_request('Images with tag ":latest" are not allowed')
    region = check_region(wanted.get("regionId"))
    build = builds.of(world, build_info) if build_info else None
    one = new(world, str(wanted.get("name") or ""), resources(world.settings, wanted))
    one.image_name, one.build, one.region = image, build, region
    one.entrypoint = wanted.get("entrypoint")
    one.sandbox_class = wanted.get("sandboxClass") or one.sandbox_class
    return one


async def _make(world: World, one: Snapshot) -> None:
    await world.clock.sleep(world.settings.lasting_s("snapshot.pending"))
    if one.build is not None:
        enter(world, one, "building")
        await builds.wait(world, one.build)
        one.image = one.build.image
        if one.image is None:
            enter(world, one, "build_failed", one.build.error)
        else:
            one.entrypoint = one.entrypoint or list(one.image.entrypoint)
            enter(world, one, "active")
        return
    assert one.image_name is not None
    enter(world, one, "pulling")
    await world.clock.sleep(world.settings.lasting_s("snapshot.pulling"))
    if any(fnmatch.fnmatch(one.image_name, gone) for gone in world.settings.gone_images):
        enter(world, one, "error", f"Failed to pull image {one.image_name}: not found")
        return
    one.image = Image(one.image_name, entrypoint=tuple(one.entrypoint or ()))
    enter(world, one, "active")


async def _remove(world: World, one: Snapshot) -> None:
    await world.clock.sleep(world.settings.lasting_s("snapshot.removing"))
    world.snapshots.pop(one.id, None)


def _page(world: World, request: web.Request) -> dict[str, Any]:
    query = request.query
    page, limit = number(query, "page", 1), number(query, "limit", 100)
    if page < 1 or limit < 1:
        raise bad_request("page and limit must not be less than 1")
    found = [
        one
        for one in world.snapshots.values()
        if query.get("name", "").lower() in one.name.lower()
        and query.get("sourceSandboxId") in (None, one.source_sandbox_id)
    ]
    by = SORTS.get(query.get("sort", ""), "created_at_s")
    found.sort(key=lambda one: getattr(one, by), reverse=query.get("order", "desc") == "desc")
    return {
        "items": [bodies.snapshot(world, one) for one in found[(page - 1) * limit : page * limit]],
        "total": len(found),
        "page": page,
        "totalPages": math.ceil(len(found) / limit),
    }
