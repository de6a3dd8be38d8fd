"""Volumes: one directory of this machine each, mounted by every sandbox that names it."""

from __future__ import annotations

import asyncio
import shutil

from aiohttp import web

from . import bodies
from .asking import body_of, text
from .errors import bad_request, conflict, not_found
from .state import Volume, World, new_id


def routes(world: World) -> list[web.RouteDef]:
    tasks: set[asyncio.Task[None]] = set()

    def soon(volume: Volume, *states: str) -> None:
        task = asyncio.get_running_loop().create_task(_pass(world, volume, states))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def create(request: web.Request) -> web.Response:
        wanted = await body_of(request, name=text)
        volume_id = new_id()
        name = str(wanted.get("name") or volume_id)
        if any(one.name == name and one.state != "deleted" for one in world.volumes.values()):
            raise bad_request(f"Volume with name {name} already exists")
        held = sum(1 for one in world.volumes.values() if one.state != "deleted")
        most = world.settings.quota.volumes
        if held >= most:
            raise bad_request(f"Volume quota exceeded. Maximum allowed: {most}")
        now_s = world.clock.now_s()
        directory = world.directory / "volumes" / volume_id
        directory.mkdir(parents=True)
        volume = Volume(volume_id, name, now_s, now_s, directory)
        world.volumes[volume_id] = volume
        soon(volume, "creating", "ready")
        return web.json_response(bodies.volume(world, volume))

    async def listing(request: web.Request) -> web.Response:
        gone = request.query.get("includeDeleted") == "true"
        here = [one for one in world.volumes.values() if gone or one.state != "deleted"]
        return web.json_response([bodies.volume(world, one) for one in here])

    async def get(request: web.Request) -> web.Response:
        return web.json_response(bodies.volume(world, find(request.match_info["volumeId"])))

    async def by_name(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        for volume in world.volumes.values():
            if volume.name == name and volume.state != "deleted":
                return web.json_response(bodies.volume(world, volume))
        raise not_found(f"Volume with name {name} not found")

    async def delete(request: web.Request) -> web.Response:
        volume = find(request.match_info["volumeId"])
        if volume.state not in ("ready", "error"):
            message = "Volume must be in 'ready' or 'error' state in order to be deleted"
            raise bad_request(message)
        user = user_of(world, volume)
        if user is not None:
            message = "Volume cannot be deleted because it is in use by one or more sandboxes"
            raise conflict(f"{message} (e.g. {user})")
        _enter(world, volume, "pending_delete")
        soon(volume, "deleting", "deleted")
        return web.Response()

    def find(volume_id: str) -> Volume:
        volume = world.volumes.get(volume_id)
        if volume is None or volume.state == "deleted":
            raise not_found(f"Volume with ID {volume_id} not found")
        return volume

    return [
        web.post("/api/volumes", create, name="createVolume"),
        web.get("/api/volumes", listing, name="listVolumes"),
        web.get("/api/volumes/by-name/{name}", by_name, name="getVolumeByName"),
        web.get("/api/volumes/{volumeId}", get, name="getVolume"),
        web.delete("/api/volumes/{volumeId}", delete, name="deleteVolume"),
    ]


def user_of(world: World, volume: Volume) -> str | None:
    """A sandbox that mounts it and is not gone, whether it runs or not."""
    for sandbox in world.present():
        if any(mount.volume_id == volume.id for mount in sandbox.mounts):
            return sandbox.id
    return None


async def _pass(world: World, volume: Volume, states: tuple[str, ...]) -> None:
    for state in states:
        await world.clock.sleep(world.settings.lasting_s(f"volume.{volume.state}"))
        if state == "deleted":
            await asyncio.to_thread(shutil.rmtree, volume.directory, ignore_errors=True)
        _enter(world, volume, state)


def _enter(world: World, volume: Volume, state: str) -> None:
    volume.state, volume.updated_at_s = state, world.clock.now_s()
