"""Images built from Dockerfiles, once per Dockerfile and contexts, with logs to be followed."""

from __future__ import annotations

import asyncio
import hashlib

from aiohttp import web

from .building import BuildFailed, make
from .errors import bad_request, not_found
from .state import ORGANIZATION_ID, Build, BuildLog, World


def of(world: World, wanted: dict[str, object]) -> Build:
    """The build that a request's `buildInfo` names, set off when it is new or had failed."""
    dockerfile = str(wanted.get("dockerfileContent") or "")
    hashes_given = wanted.get("contextHashes") or []
    assert isinstance(hashes_given, list)
    hashes = tuple(str(one) for one in hashes_given)
    for one in hashes:
        if not (world.directory / "contexts" / ORGANIZATION_ID / one / "context.tar").exists():
            raise bad_request(f"Build context {one} was not uploaded")
    digest = hashlib.sha256("\n".join((dockerfile, *hashes)).encode()).hexdigest()[:40]
    reference = f"daytona-{digest}:daytona"
    known = world.builds.get(reference)
    if known is None or known.error is not None:
        now_s = world.clock.now_s()
        known = Build(reference, dockerfile, hashes, now_s, now_s)
        world.builds[reference] = known
    return known


def begin(world: World, build: Build) -> None:
    """Set it off, if nobody has."""
    if build.work is None:
        build.work = asyncio.get_running_loop().create_task(_work(world, build))


async def wait(world: World, build: Build) -> None:
    """Its image is there afterwards, or its error."""
    begin(world, build)
    assert build.work is not None
    # Others wait for it too: who gives up must not end it.
    await asyncio.shield(build.work)


async def _work(world: World, build: Build) -> None:
    try:
        build.image = await make(world, build)
        build.log.write(f"Successfully built {build.reference}")
    except BuildFailed as failed:
        build.error = str(failed)
        build.log.write(f"ERROR: {failed}")
    finally:
        build.updated_at_s = world.clock.now_s()
        build.log.close()


def routes(world: World) -> list[web.RouteDef]:
    async def sandbox_log(request: web.Request) -> web.StreamResponse:
        sandbox = world.sandbox(request.match_info["sandboxIdOrName"])
        if sandbox is None:
            raise not_found(f"Sandbox with ID {request.match_info['sandboxIdOrName']} not found")
        return await _send(request, sandbox.build)

    async def sandbox_url(request: web.Request) -> web.StreamResponse:
        asked = request.match_info["sandboxIdOrName"]
        sandbox = world.sandbox(asked)
        if sandbox is None:
            raise not_found(f"Sandbox with ID {asked} not found")
        return web.json_response({"url": f"{world.url}/api/sandbox/{sandbox.id}/build-logs"})

    async def snapshot_log(request: web.Request) -> web.StreamResponse:
        snapshot = world.snapshot_named(request.match_info["id"])
        if snapshot is None:
            raise not_found(f"Snapshot with ID {request.match_info['id']} not found")
        return await _send(request, snapshot.build)

    async def snapshot_url(request: web.Request) -> web.StreamResponse:
        snapshot = world.snapshot_named(request.match_info["id"])
        if snapshot is None:
            raise not_found(f"Snapshot with ID {request.match_info['id']} not found")
        return web.json_response({"url": f"{world.url}/api/snapshots/{snapshot.id}/build-logs"})

    one, other = "/api/sandbox/{sandboxIdOrName}", "/api/snapshots/{id}"
    return [
        web.get(f"{one}/build-logs", sandbox_log, name="getBuildLogs"),
        web.get(f"{one}/build-logs-url", sandbox_url, name="getBuildLogsUrl"),
        web.get(f"{other}/build-logs", snapshot_log, name="getSnapshotBuildLogs"),
        web.get(f"{other}/build-logs-url", snapshot_url, name="getSnapshotBuildLogsUrl"),
    ]


async def _send(request: web.Request, build: Build | None) -> web.StreamResponse:
    """The log so far; with `follow` also what comes, until the build is over."""
    if build is None:
        raise not_found("Build logs not found: it was not built")
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(request)
    await _copy(build.log, response, follow=request.query.get("follow") == "true")
    await response.write_eof()
    return response


async def _copy(log: BuildLog, response: web.StreamResponse, *, follow: bool) -> None:
    sent = 0
    while True:
        changed = log.changed
        if len(log.text) > sent:
            await response.write(log.text[sent:].encode())
            sent = len(log.text)
        elif log.over or not follow:
            return
        else:
            await changed.wait()
