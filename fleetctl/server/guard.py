"""Refuses requests that no honest client sends, before any handler runs, and bounds all others:
hosts and origins (a web page must not drive the API), sizes, rates, and how long a body or an
answer may take. Adds the security headers to every answer.

An ASGI middleware around the whole application, pages included.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.common import version
from fleetctl.common.token_level import TokenLevel
from fleetctl.common.version import VERSION_HEADER, versions_fit
from fleetctl.server.callers import HttpError, ListenAddress

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 16 * 1024 * 1024  # twice the largest manifest
BODY_S = 120.0  # for the whole of a body
SEND_S = 30.0  # for a client to take a piece of an answer
# Of each address, in requests a second; a page or a script that waits needs a hundredth.
RATE_PER_S = 300.0
BURST = 600.0
FAILURES_PER_S = 0.5  # answers 401: a guess at a token
FAILURES_BURST = 20.0
ADDRESSES_MAX = 10_000
FORWARDED = ("x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded", "via")
HEADERS = (
    (VERSION_HEADER.encode(), version.VERSION.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        b" connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none';"
        b" frame-ancestors 'none'",
    ),
)
HSTS = (b"strict-transport-security", b"max-age=31536000")
_WITH_BODY = ("POST", "PUT", "PATCH")  # a page of another site sends no DELETE without asking
_DATA = ("/api/", "/metrics")  # no link of another site opens these
UPLOAD_SORT, UPLOAD_PATH = "application/octet-stream", "/api/v1/uploads/contents"
_PROBES = ("/healthz", "/readyz")


class TokenBuckets:
    """Rates by name; the names that were not used for longest are forgotten."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._levels: OrderedDict[str, TokenLevel] = OrderedDict()

    def left(self, name: str, now_s: float) -> float:
        """Returns how many are left for a name."""
        level = self._levels.get(name)
        return self._burst if level is None else level.left(now_s)

    def take(self, name: str, now_s: float) -> bool:
        """Takes one; False where none is left."""
        level = self._levels.setdefault(name, TokenLevel(self._per_s, self._burst))
        self._levels.move_to_end(name)
        if len(self._levels) > ADDRESSES_MAX:
            self._levels.popitem(last=False)
        return level.take(now_s) == 0.0


class RequestGuard:
    """The middleware."""

    def __init__(self, app: ASGIApp, listens: ListenAddress) -> None:
        self._app = app
        self._listens = listens
        self._hosts = _host_names(listens)
        self._rates = TokenBuckets(RATE_PER_S, BURST)
        self._failures = TokenBuckets(FAILURES_PER_S, FAILURES_BURST)
        secure = listens.tls or listens.behind_proxy
        self._headers = [*HEADERS, HSTS] if secure else [*HEADERS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        address = self.address_of(scope, headers)
        scope.setdefault("state", {})["address"] = address
        web = scope["type"] == "http"
        answer = _Answer(send, self._headers) if web else _SocketAnswer(send, self._headers)
        try:
            self._check(scope, headers, address)
            await self._app(scope, _LimitedBody(receive) if web else receive, answer.send)
        except HttpError as error:
            await answer.refuse(error)
        except _BodyTooLarge:
            await answer.refuse(_refuse_large())
        except _BodyTooSlow:
            await answer.refuse(
                HttpError(408, f"the body did not arrive within {BODY_S:g} s", code=1)
            )
        if answer.status == 401:
            self._failures.take(address, asyncio.get_running_loop().time())

    def address_of(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """Returns the client's address: behind a proxy the one that the proxy itself saw, which is
        the last of the list."""
        if self._listens.behind_proxy and (given := headers.get("x-forwarded-for")):
            return given.rpartition(",")[2].strip()[:64]
        client = scope.get("client")
        return str(client[0]) if client else ""

    def _check(self, scope: Scope, headers: Mapping[str, str], address: str) -> None:
        """Checks rates, size, host, origin and version of a request; raises HttpError."""
        now_s = asyncio.get_running_loop().time()
        if self._failures.left(address, now_s) < 1.0:
            raise HttpError(429, "too many wrong tokens from this address; wait a minute", code=1)
        if not self._rates.take(address, now_s):
            raise HttpError(429, f"more than {RATE_PER_S:g} requests a second", code=1)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            raise _refuse_large()
        if scope["path"] not in _PROBES:
            self._check_host(headers)
        self._check_page(scope, headers)
        theirs = headers.get(VERSION_HEADER, "")
        if not versions_fit(theirs, version.VERSION):
            raise HttpError(
                409,
                f"the command line is fleetctl {theirs[:40]!a}, and this server {version.VERSION}:"
                " they may be one minor version apart",
                hint="install on the older side the version of the newer one",
            )

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """A name of another site that leads here (DNS rebinding) must not reach a handler."""
        host = _without_port(headers.get("host", ""))
        if host not in self._hosts:
            raise HttpError(
                421,
                f"this server is not `{host[:100]}`",
                hint="`fleetctl serve --name HOST` adds a name under which it is reached",
            )
        if self._listens.open_to_us and (
            found := next((it for it in FORWARDED if it in headers), "")
        ):
            raise HttpError(
                403,
                f"a proxy is in front (header {found}), and everybody behind it would be the"
                " user of this machine",
                hint="fleetctl serve --behind-proxy, which asks for tokens",
            )

    def _check_page(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Refuses what a page of another site makes a browser send."""
        origin = headers.get("origin")
        if origin is not None and _origin_host(origin) not in self._hosts:
            raise HttpError(403, "a page of another site must not use this server")
        if origin is not None and _origin_port(origin) != _port_of(headers.get("host", "")):
            raise HttpError(403, "a page of another port must not use this server")
        site = headers.get("sec-fetch-site", "none")
        opens_page = headers.get("sec-fetch-mode") == "navigate" and not scope["path"].startswith(
            _DATA
        )
        if site not in ("none", "same-origin") and not (opens_page and scope["method"] == "GET"):
            raise HttpError(403, "a page of another site must not use this server")
        if scope.get("method", "GET") not in _WITH_BODY:
            return
        sort = headers.get("content-type", "").partition(";")[0].strip().lower()
        # A form of another site can send these two without asking the server first, and no JSON.
        form = sort == "application/x-www-form-urlencoded" and not scope["path"].startswith("/api/")
        # Nor can it send this one.
        upload = sort == UPLOAD_SORT and scope["path"] == UPLOAD_PATH
        if sort != "application/json" and not upload and not (form and origin is not None):
            raise HttpError(415, "the body must be JSON, with `Content-Type: application/json`")


class _BodyTooLarge(Exception):
    pass


class _BodyTooSlow(Exception):
    pass


class _LimitedBody:
    """The receiving end of a request: a body of bounded size that comes in bounded time."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._size = 0
        self._whole = False
        self._until_s = asyncio.get_running_loop().time() + BODY_S

    async def __call__(self) -> Message:
        if self._whole:  # what follows is the end of the connection, however late
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until_s):
                message = await self._receive()
        except TimeoutError:
            raise _BodyTooSlow from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > BODY_BYTES_MAX:
                raise _BodyTooLarge
        return message


class _Answer:
    """The sending end: adds headers, and gives up on a client that does not read."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message.get("headers", ())}
            added = [(k, v) for k, v in self._headers if k not in given]
            if b"cache-control" not in given:
                added.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        async with asyncio.timeout(SEND_S):
            await self._send(message)

    async def refuse(self, error: HttpError) -> None:
        """Sends an error, unless an answer has begun; the connection is closed, for the rest of a
        body may come."""
        if self.status:
            return
        body = json.dumps(error_document(error)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.status == 429:
            headers.append((b"retry-after", b"60"))
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


class _SocketAnswer(_Answer):
    """The sending end of a websocket. Its readers may be slow; a refusal is an answer of HTTP."""

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, error: HttpError) -> None:
        body = json.dumps(error_document(error)).encode()
        head = {
            "type": "websocket.http.response.start",
            "status": error.status,
            "headers": [(b"content-type", b"application/json")],
        }
        await self._send(head)
        await self._send({"type": "websocket.http.response.body", "body": body})


def error_document(error: Exception, *, code: int = 1) -> dict[str, object]:
    """Returns an error as every route sends it: as the controller's refusals. `losses`: where the
    same request with `yes` would be done."""
    losses = getattr(error, "losses", ())
    return {
        "ok": False,
        "code": getattr(error, "exit_code", code),
        "errors": str(error).split("\nerror: "),
        "hint": getattr(error, "hint", ""),
        **({"losses": list(losses)} if losses else {}),
    }


def _refuse_large() -> HttpError:
    return HttpError(
        413,
        f"the body is larger than {BODY_BYTES_MAX // 1024**2} MiB",
        hint="keep data in a Volume, and name it in the manifest",
        code=2,
    )


def _host_names(listens: ListenAddress) -> frozenset[str]:
    own = {listens.host.lower(), *(it.lower() for it in listens.names)}
    if listens.loopback:
        own |= {"127.0.0.1", "localhost", "::1"}
    return frozenset(own - {"0.0.0.0", "::"})  # noqa: S104 - names of no host


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _port_of(host: str) -> str:
    end = host.rpartition("]")[2] if host.startswith("[") else host
    return end.rpartition(":")[2] if ":" in end else ""


def _origin_host(origin: str) -> str:
    return _without_port(origin.partition("://")[2])


def _origin_port(origin: str) -> str:
    return _port_of(origin.partition("://")[2])
