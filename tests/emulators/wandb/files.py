"""What is not GraphQL: the stream of a run's files, uploads, measurements of wandb's own."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from .errors import not_logged_in
from .schema.access import Caller
from .world.state import World

CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


def routes(world: World) -> list[web.RouteDef]:
    """Their names are those of operations, for faults and counts."""

    async def stream(request: web.Request) -> web.Response:
        entity, project, name = (request.match_info[it] for it in ("entity", "project", "run"))
        if entity not in request[CALLER].entities:
            raise not_logged_in()
        run = world.run(entity, project, name)
        if run is None:
            return web.json_response(
                {"error": f"run {entity}/{project}/{name} not found"}, status=404
            )
        run.take(await request.json(), world.clock())
        answer: dict[str, Any] = {"exitcode": None, "limits": {}}
        return web.json_response(answer | ({"stopped": True} if run.stopping else {}))

    async def upload(request: web.Request) -> web.Response:
        """Signed addresses: whoever has one needs no key."""
        entity, project, name = (request.match_info[it] for it in ("entity", "project", "run"))
        body = await request.read()
        run = world.run(entity, project, name)
        if run is None:
            return web.Response(status=403, text="the signature has expired")
        run.uploads[request.match_info["path"]] = len(body)
        return web.Response()

    async def drop(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    return [
        web.post("/files/{entity}/{project}/{run}/file_stream", stream, name="file_stream"),
        web.put("/storage/{entity}/{project}/{run}/{path:.+}", upload, name="upload"),
        web.post("/sdk/otel/v1/{kind}", drop, name="otel"),
    ]
