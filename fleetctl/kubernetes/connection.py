"""A connection to an API server with our identity: a request in, a dict out, each under our own
deadline.

Called by the informer, the provider `kubernetes` and the operator. Credentials are found by the
official client (kubeconfig with its exec plugins, or the pod's own service account); requests are
raw JSON, because its typed models cost a second of CPU and lose fields that they do not know.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from pydantic_core import from_json, to_json

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.kubernetes.answers import (
    TOO_MANY,
    UNAUTHORIZED,
    error_of,
    event_error,
    no_package,
    seconds_of,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientTimeout
    from kubernetes.aio.client import ApiClient, Configuration

log = logging.getLogger("fleetctl.kubernetes")

Object = dict[str, Any]
Query = Mapping[str, str | int | bool]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

CALL_S = 15.0  # per try; a busy API server answers within seconds or refuses
TRIES = 4
BACKOFF_S = 0.2
BACKOFF_MAX_S = 5.0
# A watch that is silent for longer than this is dead: bookmarks come about every minute.
WATCH_SILENCE_S = 90.0
# Each live run of the provider holds a websocket, and calls go beside them.
CONNECTIONS_MAX = 2000
LEFT_MAX = 8  # clients of older tokens, whose streams go on
USUAL_FILE = Path("~/.kube/config")
_OTHER_FILE = "`kubectl config get-contexts` lists what there is; KUBECONFIG names another file"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Safe to repeat although the fate of the last try is unknown.
IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})


class ApiConnection:
    """A connection to an API server. client: for callers that need websockets. namespace: the
    namespace of this kubeconfig, or of this pod.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[tuple[ApiClient, str]]],
        client: ApiClient,
        at: str,
    ) -> None:
        self._load = load
        self.client = client
        self.namespace = at
        self._left: list[ApiClient] = []  # of tokens that ran out
        self._logging_in = asyncio.Lock()
        self._random = Random()  # noqa: S311 - jitter
        # Every request that was made: (method, path); for tests of the needed rights.
        self.on_request: Callable[[str, str], None] | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = JSON,
        deadline_s: float = CALL_S,
        tries: int = TRIES,
    ) -> Object:
        """Returns the server's reply. Sends the request again after a passing error, `tries` times
        in all.

        Raises ApiError for a reply with a meaning to the caller, and Unavailable for a passing
        error. A POST or PATCH whose fate is unknown is not repeated: its caller knows how to look.
        """
        for count in range(1, tries + 1):
            try:
                return await self._once(
                    method,
                    path,
                    query,
                    body,
                    content_type,
                    deadline_s,
                )
            except Unavailable as error:
                sure = not error.perhaps_made or method in IDEMPOTENT
                if count == tries or error.account or not sure:
                    raise
                wait_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0**count)
                await asyncio.sleep(max(error.retry_after_s, wait_s * self._random.random()))
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        content_type: str,
        deadline_s: float,
    ) -> Object:
        what = f"{method} {path}"
        for again in (False, True):
            try:
                async with asyncio.timeout(deadline_s):
                    answer = await self._send(
                        method,
                        path,
                        query,
                        body,
                        content_type,
                    )
                    async with answer:
                        data = await answer.read()
            except TimeoutError as error:
                message = f"{what}: the Kubernetes API server does not answer"
                raise Unavailable(message, perhaps_made=True) from error
            except OSError as error:
                raise _unreachable_error(what, error) from error
            if answer.status == UNAUTHORIZED and not again:
                await self._log_in_again()
                continue
            if answer.status >= 400:
                wait_s = seconds_of(answer.headers.get("Retry-After"))
                failure = error_of(answer.status, data, what, wait_s)
                if isinstance(failure, Unavailable) and answer.status != TOO_MANY:
                    failure.perhaps_made = not failure.account
                raise failure
            return _parse_document(data, what)
        raise AssertionError("the second answer returns or raises")

    async def watch(self, path: str, query: Query) -> AsyncIterator[Object]:
        """Yields the events of a watch, until the server ends it or is silent for too long. Raises
        ApiError (`expired`: list again) and Unavailable.
        """
        asked = {"watch": True, "allowWatchBookmarks": True, **query}
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._send(
                    "GET",
                    path,
                    asked,
                    None,
                    JSON,
                )
            async with answer:
                if answer.status >= 400:
                    raise error_of(answer.status, await answer.read(), f"watch {path}")
                async for line in _split_lines(answer.content):
                    event = _parse_document(line, f"watch {path}")
                    if event.get("type") == "ERROR":
                        raise event_error(event.get("object") or {})
                    yield event
        except TimeoutError as error:
            raise Unavailable(f"watch {path}: the API server is silent") from error
        except OSError as error:
            raise _unreachable_error(f"watch {path}", error) from error

    async def text(self, path: str, query: Query | None = None) -> bytes:
        """Returns a reply that is not JSON, such as a pod's log, whole. Raises as `request`."""
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._send(
                    "GET",
                    path,
                    query,
                    None,
                    JSON,
                )
                async with answer:
                    data: bytes = await answer.read()
        except TimeoutError as error:
            raise Unavailable(f"the API server does not answer: GET {path}") from error
        except OSError as error:
            raise _unreachable_error(f"GET {path}", error) from error
        if answer.status >= 400:
            raise error_of(answer.status, data, f"GET {path}")
        return data

    async def websocket(
        self,
        path: str,
        query: str,
        protocols: Sequence[str],
    ) -> Any:
        """Returns aiohttp's ClientWebSocketResponse; the caller closes it. query: encoded, for its
        repeated `command`. Raises as `request`.
        """
        from aiohttp import ClientError, WSServerHandshakeError

        configuration = self.client.configuration
        if self.on_request is not None:
            self.on_request("GET", path)
        url = f"{configuration.host.rstrip('/')}{path}?{query}"
        try:
            async with asyncio.timeout(CALL_S):
                return await self._session().ws_connect(
                    url,
                    protocols=tuple(protocols),
                    headers=await self._headers(),
                    max_msg_size=0,
                    proxy=configuration.proxy,
                )
        except WSServerHandshakeError as error:
            body = json.dumps({"message": error.message}).encode()
            raise error_of(error.status, body, f"GET {path}") from error
        except TimeoutError as error:
            raise Unavailable(f"the API server does not answer: GET {path}") from error
        except (ClientError, OSError) as error:
            raise _unreachable_error(f"GET {path}", ConnectionError(str(error))) from error

    async def close(self) -> None:
        for client in (*self._left, self.client):
            await client.close()

    async def _headers(self) -> dict[str, str]:
        """Returns the headers with the credentials."""
        headers = {"User-Agent": "fleetctl"}
        for setting in (await self.client.configuration.auth_settings()).values():
            headers[str(setting["key"])] = str(setting["value"])
        return headers

    async def _send(
        self, method: str, path: str, query: Query | None, body: object, content_type: str
    ) -> Any:
        """Sends a request; returns aiohttp's reply, not yet read. Raises OSError for any fault of
        the network.

        By the session of the official client, whose own method costs a quarter more CPU.
        """
        failed, never = _aiohttp_parts()
        if self.on_request is not None:
            self.on_request("WATCH" if query and query.get("watch") else method, path)
        configuration = self.client.configuration
        options: dict[str, Any] = {}
        if configuration.tls_server_name:
            options["server_hostname"] = configuration.tls_server_name
        if configuration.proxy:
            options["proxy"] = configuration.proxy
        if configuration.proxy_headers:
            options["proxy_headers"] = configuration.proxy_headers
        url = configuration.host.rstrip("/") + path
        if query:
            url += "?" + urlencode({key: _format_parameter(value) for key, value in query.items()})
        headers = {"Accept": JSON, "Content-Type": content_type, **await self._headers()}
        try:
            return await self._session().request(
                method,
                url,
                headers=headers,
                data=None if body is None else format_document(body),
                timeout=never,
                **options,
            )
        except failed as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    def _session(self) -> ClientSession:
        rest = self.client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        session: ClientSession = rest.pool_manager
        return session

    async def _log_in_again(self) -> None:
        """Replaces a token that ran out: the kubeconfig, or its plugin, may have a newer one.
        Streams with the older one go on: closed under it, a watch would wait for ever.
        """
        before = self.client
        async with self._logging_in:
            if self.client is not before:
                return  # somebody else was first
            made, namespace = await self._load()
            if await _read_credentials(made) == await _read_credentials(before):
                await made.close()
                return
            self.client = made
            self.namespace = namespace
            self._left.append(before)
            if len(self._left) > LEFT_MAX:
                await self._left.pop(0).close()


async def connect_cluster(*, context: str = "", kubeconfig: str = "") -> ApiConnection:
    """Connects to the context of a kubeconfig; empty: its current one, or without a kubeconfig,
    this pod's cluster. Sends no request; may run an exec plugin. Raises Refused.
    """

    async def load() -> tuple[ApiClient, str]:
        return await _load_client(context, kubeconfig)

    client, namespace = await load()
    return ApiConnection(load, client, namespace)


async def _load_client(context: str, kubeconfig: str) -> tuple[ApiClient, str]:
    try:
        from kubernetes.aio import config
        from kubernetes.aio.client import ApiClient, Configuration
    except ImportError as error:
        raise no_package(error) from error
    made = Configuration()
    made.connection_pool_maxsize = CONNECTIONS_MAX
    named = kubeconfig or os.environ.get("KUBECONFIG") or ""
    in_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.is_dir()
    try:
        if in_pod and not named and not context:
            config.load_incluster_config(client_configuration=made)
            _choose_proxy(made)
            return ApiClient(made), (SERVICE_ACCOUNT / "namespace").read_text().strip()
        if not named and not USUAL_FILE.expanduser().exists():
            # By default the library prints messages of its own.
            raise Refused(f"there is no kubeconfig `{USUAL_FILE}`", hint=_OTHER_FILE)
        loader = await config.load_kube_config(
            config_file=named or None,
            context=context or None,
            client_configuration=made,
            persist_config=False,
        )
        chosen = loader.current_context["context"]
        _choose_proxy(made)
        return ApiClient(made), str(chosen.get("namespace") or "default")
    except FleetctlError:
        raise
    except Exception as error:  # its client reports a bad kubeconfig by errors of many libraries
        where = f"context `{context}` of " if context else ""
        file = named or USUAL_FILE
        raise Refused(
            f"{where}the kubeconfig `{file}` cannot be used: {error}",
            hint=_OTHER_FILE,
        ) from error


def _choose_proxy(made: Configuration) -> None:
    """Sets the proxy of the kubeconfig, or of the environment, once. aiohttp would look for it, and
    for a password in ~/.netrc, in two threads before each request.
    """
    made.client_session_kwargs = {"trust_env": False}
    made.proxy = made.proxy or find_proxy(made.host)


def find_proxy(url: str) -> str | None:
    """Returns the proxy that the environment names for a server; None for a server of this machine,
    to which kubectl goes directly, too.
    """
    from urllib.request import getproxies, proxy_bypass

    host = urlsplit(url).hostname or ""
    if not host or host == "localhost" or host.startswith("127.") or host == "::1":
        return None
    if proxy_bypass(host):
        return None
    return getproxies().get(urlsplit(url).scheme)


async def _read_credentials(client: ApiClient) -> object:
    return await client.configuration.auth_settings(), client.configuration.host


async def _split_lines(content: Any) -> AsyncIterator[bytes]:
    """Yields whole lines, however long. Raises TimeoutError after a silence."""
    from aiohttp import ClientError

    rest = b""
    while True:
        async with asyncio.timeout(WATCH_SILENCE_S):
            try:
                chunk = await content.readany()
            except ClientError as error:
                raise ConnectionError(str(error) or type(error).__name__) from error
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line


@cache
def _aiohttp_parts() -> tuple[type[Exception], ClientTimeout]:
    """Returns what each request needs: the errors of the network, and the deadline of none.
    Deadlines are ours; aiohttp's own would end a watch.
    """
    from aiohttp import ClientError, ClientTimeout

    return ClientError, ClientTimeout(total=None)


def _format_parameter(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def format_document(body: object) -> bytes:
    """Returns a body as JSON."""
    try:
        return to_json(body)
    except ValueError:  # half a character, which JSON can only escape
        return json.dumps(body).encode()


def parse_json(data: bytes) -> Any:
    """Parses JSON in half the time that the standard library takes for it."""
    try:
        return from_json(data, cache_strings="keys")
    except ValueError:
        return json.loads(data)  # half a character, or a depth that only it accepts


def _parse_document(data: bytes, what: str) -> Object:
    try:
        found = parse_json(data or b"{}")
    except ValueError as error:
        raise Unavailable(f"{what}: the answer is not JSON", perhaps_made=True) from error
    if isinstance(found, dict):
        return found
    return {"items": found}


def _unreachable_error(what: str, error: OSError) -> Unavailable:
    refused = isinstance(error, ConnectionRefusedError) or "Cannot connect" in str(error)
    return Unavailable(
        f"{what}: the Kubernetes API server cannot be reached: {error}",
        perhaps_made=not refused,
    )
