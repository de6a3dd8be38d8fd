"""Ways into a sandbox besides its toolbox: previews of its ports, SSH grants, signing keys."""

from __future__ import annotations

import secrets

import aiohttp
from aiohttp import web

from . import bodies
from .errors import Refused, bad_request, not_found
from .query import number
from .sandboxes import find, shown
from .state import Grant, Sandbox, World, new_id

HEADER, QUERY = "x-daytona-preview-token", "DAYTONA_SANDBOX_AUTH_KEY"
SSH_MINUTES, SIGNED_S, SIGNED_S_MAX = 60, 60, 24 * 3600
HOP_BY_HOP = frozenset(
    ["connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length"]
)


def routes(world: World) -> list[web.RouteDef]:
    one, of = "/api/sandbox/{sandboxIdOrName}", "/api/sandbox/{sandboxId}"
    return [
        *_ports(world, f"{one}/ports/{{port}}"),
        *_ssh(world, one),
        *_keys(world, of),
        *_for_proxies(world),
        web.route("*", "/preview/{sandboxId}/{port}{rest:(/.*)?}", _open_preview(world)),
        web.route("*", "/signed/{token}/{port}{rest:(/.*)?}", _signed_preview(world)),
    ]


def _ports(world: World, port: str) -> list[web.RouteDef]:
    async def url(request: web.Request) -> web.Response:
        sandbox, number_ = find(world, request), _port(request)
        address = f"{world.url}/preview/{sandbox.id}/{number_}"
        return web.json_response({"sandboxId": sandbox.id, "url": address, "token": sandbox.token})

    async def signed(request: web.Request) -> web.Response:
        sandbox, number_ = find(world, request), _port(request)
        for_s = number(request.query, "expiresInSeconds", SIGNED_S)
        if not 1 <= for_s <= SIGNED_S_MAX:
            raise bad_request(f"expiresInSeconds must be between 1 and {SIGNED_S_MAX}")
        grant = _grant(world, sandbox, for_s, port=number_)
        world.previews[grant.token] = grant
        address = f"{world.url}/signed/{grant.token}/{number_}"
        body = {"sandboxId": sandbox.id, "port": number_, "token": grant.token, "url": address}
        return web.json_response(body)

    async def expire(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        grant = world.previews.get(request.match_info["token"])
        if grant is None or grant.sandbox_id != sandbox.id:
            raise not_found("Signed preview URL token not found")
        del world.previews[grant.token]
        return web.Response()

    return [
        web.get(f"{port}/preview-url", url, name="getPortPreviewUrl"),
        web.get(f"{port}/signed-preview-url", signed, name="getSignedPortPreviewUrl"),
        web.post(
            f"{port}/signed-preview-url/{{token}}/expire", expire, name="expireSignedPortPreviewUrl"
        ),
    ]


def _ssh(world: World, one: str) -> list[web.RouteDef]:
    async def create(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        minutes = number(request.query, "expiresInMinutes", SSH_MINUTES)
        if minutes < 1:
            raise bad_request("expiresInMinutes must not be less than 1")
        grant = _grant(world, sandbox, minutes * 60)
        world.ssh[grant.token] = grant
        return web.json_response(bodies.ssh_access(world, grant))

    async def revoke(request: web.Request) -> web.Response:
        sandbox, token = find(world, request), request.query.get("token")
        for grant in list(world.ssh.values()):
            if grant.sandbox_id == sandbox.id and token in (None, grant.token):
                del world.ssh[grant.token]
        return shown(world, sandbox)

    async def validate(request: web.Request) -> web.Response:
        grant = world.ssh.get(request.query.get("token", ""))
        valid = grant is not None and grant.expires_at_s > world.clock.now_s()
        body = {"valid": valid, "sandboxId": grant.sandbox_id if grant and valid else ""}
        return web.json_response(body)

    return [
        # Before the route of one sandbox's own, whose pattern would match it as well.
        web.get("/api/sandbox/ssh-access/validate", validate, name="validateSshAccess"),
        web.post(f"{one}/ssh-access", create, name="createSshAccess"),
        web.delete(f"{one}/ssh-access", revoke, name="revokeSshAccess"),
    ]


def _keys(world: World, of: str) -> list[web.RouteDef]:
    async def toolbox_url(request: web.Request) -> web.Response:
        find(world, request)
        return web.json_response({"url": f"{world.url}/toolbox"})

    async def key(request: web.Request) -> web.Response:
        return web.json_response(find(world, request).signing_key)

    async def rotate(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        sandbox.signing_key = secrets.token_hex(16)
        return web.json_response(sandbox.signing_key)

    return [
        web.get(f"{of}/toolbox-proxy-url", toolbox_url, name="getToolboxProxyUrl"),
        web.get(f"{of}/signing-key", key, name="getSandboxSigningKey"),
        web.post(f"{of}/signing-key/rotate", rotate, name="rotateSigningKey"),
    ]


def _for_proxies(world: World) -> list[web.RouteDef]:
    """What a preview proxy asks the API."""

    async def public(request: web.Request) -> web.Response:
        return web.json_response(find(world, request).public)

    async def warning(request: web.Request) -> web.Response:
        find(world, request)
        return web.json_response({"enabled": False})

    async def valid(request: web.Request) -> web.Response:
        return web.json_response(request.match_info["authToken"] == find(world, request).token)

    async def access(request: web.Request) -> web.Response:
        find(world, request)
        return web.json_response(True)

    async def sandbox_id(request: web.Request) -> web.Response:
        grant = _valid_grant(world, request.match_info["token"], _port(request))
        return web.json_response(grant.sandbox_id)

    of = "/api/preview/{sandboxId}"
    signed = "/api/preview/{token}/{port}/sandbox-id"
    return [
        web.get(f"{of}/public", public, name="isSandboxPublic"),
        web.get(f"{of}/preview-warning", warning, name="isPreviewWarningEnabled"),
        web.get(f"{of}/validate/{{authToken}}", valid, name="isValidAuthToken"),
        web.get(f"{of}/access", access, name="hasSandboxAccess"),
        web.get(signed, sandbox_id, name="getSandboxIdFromSignedPreviewUrlToken"),
    ]


def _open_preview(world: World):  # type: ignore[no-untyped-def]
    async def handle(request: web.Request) -> web.StreamResponse:
        sandbox = find(world, request)
        given = request.headers.get(HEADER) or request.query.get(QUERY)
        if not sandbox.public and given != sandbox.token:
            raise Refused(401, "Unauthorized")
        return await _pass_on(request, sandbox, _port(request))

    return handle


def _signed_preview(world: World):  # type: ignore[no-untyped-def]
    async def handle(request: web.Request) -> web.StreamResponse:
        grant = _valid_grant(world, request.match_info["token"], _port(request))
        return await _pass_on(request, world.sandboxes[grant.sandbox_id], _port(request))

    return handle


def _valid_grant(world: World, token: str, port: int) -> Grant:
    grant = world.previews.get(token)
    if grant is None or grant.port != port or grant.expires_at_s <= world.clock.now_s():
        raise Refused(401, "Unauthorized")
    return grant


async def _pass_on(request: web.Request, sandbox: Sandbox, port: int) -> web.StreamResponse:
    """To the port on this machine: boxes share its loopback network."""
    if sandbox.state != "started":
        raise bad_request("no IP address found. Is the Sandbox started?")
    headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
    url = f"http://127.0.0.1:{port}{request.match_info['rest'] or '/'}"
    sandbox.open_requests += 1
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            asked = session.request(
                request.method,
                url,
                params=request.query,
                headers=headers,
                data=await request.read(),
            )
            async with asked as got:
                kept = {k: v for k, v in got.headers.items() if k.lower() not in HOP_BY_HOP}
                return web.Response(status=got.status, headers=kept, body=await got.read())
    except aiohttp.ClientConnectionError as error:
        raise Refused(502, f"dial tcp 127.0.0.1:{port}: connection refused") from error
    finally:
        sandbox.open_requests -= 1


def _grant(world: World, sandbox: Sandbox, for_s: float, *, port: int | None = None) -> Grant:
    now_s = world.clock.now_s()
    # Tokens stand in URLs' host names on the platform: lower case letters and digits.
    return Grant(new_id(), sandbox.id, secrets.token_hex(12), now_s, now_s + for_s, port)


def _port(request: web.Request) -> int:
    try:
        port = int(request.match_info["port"])
    except ValueError as error:
        raise bad_request("Invalid port") from error
    if not 1 <= port <= 65535:
        raise bad_request("Port must be between 1 and 65535")
    return port
