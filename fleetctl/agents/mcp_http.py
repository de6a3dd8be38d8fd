"""Serves the tools to agents over HTTP, as a resource server of OAuth 2.1: each request has a
bearer token, of `fleetctl token` or of an issuer, and the role of its user binds the tools.

`/mcp` is the resource. Its metadata (RFC 9728) is open to everybody, and every 401 names the
metadata's address. A token of the issuer must be for this resource (RFC 8707), so that one that
was given to another server does not open this one. Host, Origin, sizes and rates are checked by the
guard of `fleetctl serve`. No tokens are made here, and none is sent on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fleetctl.agents.agent_limits import AgentLimits
from fleetctl.agents.mcp_server import NAME, TOKEN, AgentServer, ToolContext, name_agent
from fleetctl.agents.tools import open_api
from fleetctl.common.clock import SystemClock
from fleetctl.server.api_server import serve_application
from fleetctl.server.callers import (
    EDITOR,
    VIEWER,
    Caller,
    CallerCheck,
    HttpError,
    ListenAddress,
    TokenIssuer,
)
from fleetctl.server.guard import BODY_BYTES_MAX, RequestGuard, error_document
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.access import EVERYWHERE, AccessStore
from fleetctl.stores.waits import WaitStore

if TYPE_CHECKING:
    from fleetctl.server.oidc import OidcConfig

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
SESSIONS_MAX = 1000  # of clients of older revisions, which keep one
IDLE_S = 1800.0


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """The resource that tokens are for, under each name by which its server is reached."""

    listens: ListenAddress

    @property
    def origins(self) -> tuple[str, ...]:
        """Returns the origins of the server, the one that users know first."""
        listens = self.listens
        scheme = "https" if listens.tls or listens.behind_proxy else "http"
        # A proxy has the port of its scheme.
        port = "" if listens.behind_proxy else f":{listens.port}"
        own = ("127.0.0.1", "localhost", "[::1]") if listens.loopback else (listens.host,)
        hosts = listens.names or own if listens.behind_proxy else listens.names + own
        return tuple(f"{scheme}://{host.lower()}{port}" for host in hosts)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(origin + PATH for origin in self.origins)

    def find_origin(self, host: str) -> str:
        """Returns the origin under which a request came, by its header Host: a client takes
        metadata only where they name the address that it knows."""
        own = self.origins
        return next((it for it in own if it.partition("://")[2] == host.lower()), own[0])


class McpEndpoint:
    """The resource: finds the user of each request, and hands it to the protocol's library."""

    def __init__(
        self,
        callers: CallerCheck,
        resource: ProtectedResource,
        limits: AgentLimits,
    ) -> None:
        self._callers = callers
        self._resource = resource
        self._limits = limits
        self._sessions: StreamableHTTPSessionManager | None = None

    @contextlib.asynccontextmanager
    async def open(self, home: Path) -> AsyncIterator[None]:
        """Makes the tools, and keeps them until the server ends."""
        async with open_api(home) as api:
            server = AgentServer(
                api, self._limits, find_request_caller, WaitStore(home)
            ).make_server()
            self._sessions = StreamableHTTPSessionManager(
                server,
                max_request_body_size=BODY_BYTES_MAX,
                max_sessions=SESSIONS_MAX,
                session_idle_timeout=IDLE_S,
            )
            async with self._sessions.run():
                yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            caller = await self._find_caller(scope, headers)
        except HttpError as error:
            await self._refuse(error, headers)(scope, receive, send)
            return
        # Sessions and open questions belong to the token that began them.
        principal = AccessToken(token="", client_id=caller.token, scopes=[], subject=caller.user)
        scope["user"] = AuthenticatedUser(principal)
        scope["state"]["caller"] = caller
        assert self._sessions is not None
        await self._sessions.handle_request(scope, receive, send)

    async def _find_caller(self, scope: Scope, headers: Headers) -> Caller:
        """Returns the user of a request, as the limits bind its agents. Raises HttpError.

        Cookies and the user of this machine count for nothing here: a page in a browser, or a
        program that runs as that user, must not use this server without a token."""
        found = await self._callers.find(
            headers,
            {},
            peer=None,
            address=scope["state"].get("address", ""),
            now_s=SystemClock().now_s(),
        )
        return bind_caller(found, self._limits)

    def _refuse(self, error: HttpError, headers: Headers) -> Response:
        """Returns the response to a request without a user; RFC 6750 and 9728 have its header."""
        added: dict[str, str] = {}
        origin = self._resource.find_origin(headers.get("host", ""))
        about = f'resource_metadata="{origin}{METADATA}{PATH}"'
        if error.status == 401:
            given = 'error="invalid_token", ' if "authorization" in headers else ""
            added["www-authenticate"] = f"Bearer {given}{about}"
        elif error.status == 403:
            added["www-authenticate"] = f'Bearer error="insufficient_scope", {about}'
        return JSONResponse(error_document(error), error.status, headers=added)


def bind_caller(caller: Caller, limits: AgentLimits) -> Caller:
    """Returns a user as an agent has the rights: in one namespace, and never an admin's. Raises
    HttpError for a user without a right there."""
    own = DEFAULT_NAMESPACE if caller.namespace == EVERYWHERE else caller.namespace
    namespace = limits.namespace or own
    caller.require(VIEWER, namespace)
    changes = caller.may(EDITOR, namespace) and not limits.read_only
    return replace(caller, role=EDITOR if changes else VIEWER, namespace=namespace)


def find_request_caller(context: ToolContext) -> Caller:
    """Returns the user of a request, with the name that the agent's program gives itself."""
    assert context.request is not None
    caller: Caller = context.request.scope["state"]["caller"]
    return replace(caller, agent=name_agent(context.session.client_params) or TOKEN)


def make_mcp_app(
    home: Path,
    listens: ListenAddress,
    limits: AgentLimits,
    oidc: OidcConfig | None,
) -> ASGIApp:
    """Returns the application. oidc: the issuer of tokens beside those of `fleetctl token`."""
    resource = ProtectedResource(listens)
    callers = CallerCheck(AccessStore(home), listens, _make_issuer(oidc, resource))
    endpoint = McpEndpoint(callers, resource, limits)

    async def show_metadata(request: Request) -> Response:
        return JSONResponse(
            {
                "resource": resource.find_origin(request.headers.get("host", "")) + PATH,
                "resource_name": NAME,
                "bearer_methods_supported": ["header"],
                **({"authorization_servers": [oidc.issuer]} if oidc is not None else {}),
            }
        )

    async def show_health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    @contextlib.asynccontextmanager
    async def live(_: Starlette) -> AsyncIterator[None]:
        async with endpoint.open(home):
            yield

    return Starlette(
        routes=[
            Route(PATH, endpoint),
            Route(METADATA + PATH, show_metadata),
            Route(METADATA, show_metadata),
            Route("/healthz", show_health),
        ],
        lifespan=live,
        middleware=[Middleware(RequestGuard, listens=listens)],
    )


def _make_issuer(oidc: OidcConfig | None, resource: ProtectedResource) -> TokenIssuer | None:
    """Returns the check of an issuer's tokens, which must be for this resource."""
    if oidc is None:
        return None
    from fleetctl.server.oidc import OidcCheck

    return OidcCheck(oidc, (oidc.mcp_audience,) if oidc.mcp_audience else resource.addresses)


def serve_agents(
    home: Path,
    listens: ListenAddress,
    limits: AgentLimits,
    *,
    oidc: OidcConfig | None,
    cert: str,
    key: str,
    say: Callable[[str], None],
) -> int:
    """Serves until a signal ends it. say: gets the address of the resource, the first line of
    output. Raises as serve_application."""
    return serve_application(
        home,
        listens,
        lambda found: make_mcp_app(home, found, limits, oidc),
        cert=cert,
        key=key,
        sockets=False,
        announce=lambda found: say(found.url + PATH),
    )
