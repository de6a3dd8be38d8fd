"""The organization's secrets. Their values never leave the server again."""

from __future__ import annotations

import re
import secrets as randomness
from typing import Any

from aiohttp import web

from . import bodies
from .asking import body_of, lines, text, texts
from .errors import bad_request, conflict, not_found
from .query import number
from .state import Secret, World, new_id

NAME = re.compile(r"[A-Za-z0-9_\-]+")
LIMIT = 100
FIELDS = {"name": text, "value": lines, "description": lines, "hosts": texts}


def routes(world: World) -> list[web.RouteDef]:
    def find(request: web.Request) -> Secret:
        found = world.secrets.get(request.match_info["secretId"])
        if found is None:
            raise not_found(f"Secret with ID {request.match_info['secretId']} not found")
        return found

    async def create(request: web.Request) -> web.Response:
        wanted = await body_of(request, **FIELDS)
        secret = _new(world, wanted)
        world.secrets[secret.id] = secret
        return web.json_response(bodies.secret(world, secret), status=201)

    async def listing(request: web.Request) -> web.Response:
        return web.json_response([bodies.secret(world, one) for one in world.secrets.values()])

    async def pages(request: web.Request) -> web.Response:
        return web.json_response(_page(world, request))

    async def get(request: web.Request) -> web.Response:
        return web.json_response(bodies.secret(world, find(request)))

    async def update(request: web.Request) -> web.Response:
        secret, wanted = find(request), await body_of(request, **FIELDS)
        secret.value = wanted.get("value", secret.value)
        secret.description = wanted.get("description", secret.description)
        secret.hosts = wanted.get("hosts", secret.hosts)
        secret.updated_at_s = world.clock.now_s()
        return web.json_response(bodies.secret(world, secret))

    async def delete(request: web.Request) -> web.Response:
        secret = find(request)
        del world.secrets[secret.id]
        return web.Response(status=204)

    return [
        web.post("/api/secret", create, name="createSecret"),
        web.get("/api/secret", listing, name="listSecrets"),
        web.get("/api/secret/paginated", pages, name="listSecretsPaginated"),
        web.get("/api/secret/{secretId}", get, name="getSecret"),
        web.patch("/api/secret/{secretId}", update, name="updateSecret"),
        web.delete("/api/secret/{secretId}", delete, name="deleteSecret"),
    ]


def _new(world: World, wanted: dict[str, Any]) -> Secret:
    name, value = str(wanted.get("name") or ""), wanted.get("value")
    if not NAME.fullmatch(name):
        raise bad_request("name must contain only letters, numbers, hyphens and underscores")
    if not isinstance(value, str):
        raise bad_request("value must be a string")
    if any(one.name == name for one in world.secrets.values()):
        raise conflict(f"Secret with name {name} already exists")
    most = world.settings.quota.secrets
    if len(world.secrets) >= most:
        raise bad_request(f"Secret quota exceeded. Maximum allowed: {most}")
    now_s = world.clock.now_s()
    return Secret(
        id=new_id(),
        name=name,
        value=value,
        placeholder=f"dtn_secret_{randomness.token_hex(12)}",
        created_at_s=now_s,
        updated_at_s=now_s,
        description=wanted.get("description"),
        hosts=list(wanted.get("hosts") or []),
    )


def _page(world: World, request: web.Request) -> dict[str, Any]:
    limit, begin = number(request.query, "limit", LIMIT), number(request.query, "cursor", 0)
    name = request.query.get("name", "")
    found = [one for one in world.secrets.values() if name.lower() in one.name.lower()]
    by = "name" if request.query.get("sort") == "name" else "created_at_s"
    found.sort(key=lambda one: getattr(one, by))
    if request.query.get("order", "asc" if by == "name" else "desc") == "desc":
        found.reverse()
    more = begin + limit < len(found)
    return {
        "items": [bodies.secret(world, one) for one in found[begin : begin + limit]],
        "total": len(found),
        "nextCursor": str(begin + limit) if more else None,
    }
