"""One API server and who we are to it: a request in, a dict out, each under our own deadline.

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
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

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
    from kubernetes.aio.client import ApiClient

log = logging.getLogger("fleetctl.kubernetes")

Object = dict[str, Any]
Query = Mapping[str, str | int | bool]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

CALL_S = 15.0  # of one try; a busy API server answers within seconds or refuses
TRIES = 4
BACKOFF_S, BACKOFF_MAX_S = 0.2, 5.0
# A watch that is silent for longer than this is dead: bookmarks come about every minute.
WATCH_SILENCE_S = 90.0
# Each live run of the provider holds a websocket, and calls go beside them.
CONNECTIONS_MAX = 2000
LEFT_MAX = 8  # clients of older tokens, whose streams go on
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Safe to make again although nobody knows what became of the last try.
IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})


class Connection:
    """client: for who needs websockets. namespace: where this kubeconfig, or this pod, is."""

    def __init__(
        self, load: Callable[[], Awaitable[tuple[ApiClient, str]]], client: ApiClient, at: str
    ) -> None:
        self._load = load
        self.client, self.namespace = client, at
        self._left: list[ApiClient] = []  # of tokens that ran out
        self._logging_in = asyncio.Lock()
        self._random = Random()  # noqa: S311 - jitter
        # Every request that was made: (method, path); for who has to know what rights are needed.
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
        """What the server answers. What is passing is asked again, `tries` times in all.

        Raises ApiError for an answer that means something, and Unavailable for what may pass. A
        POST or PATCH whose fate nobody knows is not made again: its caller knows how to look.
        """
        for count in range(1, tries + 1):
            try:
                return await self._once(method, path, query, body, content_type, deadline_s)
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
                    answer = await self._send(method, path, query, body, content_type)
                    async with answer:
                        data = await answer.read()
            except TimeoutError as error:
                message = f"{what}: the Kubernetes API server does not answer"
                raise Unavailable(message, perhaps_made=True) from error
            except OSError as error:
                raise _lost(what, error) from error
            if answer.status == UNAUTHORIZED and not again:
                await self._log_in_again()
                continue
            if answer.status >= 400:
                wait_s = seconds_of(answer.headers.get("Retry-After"))
                failure = error_of(answer.status, data, what, wait_s)
                if isinstance(failure, Unavailable) and answer.status != TOO_MANY:
                    failure.perhaps_made = not failure.account
                raise failure
            return _document(data, what)
        raise AssertionError("the second answer returns or raises")

    async def watch(self, path: str, query: Query) -> AsyncIterator[Object]:
        """The events of a watch, until the server ends it or is silent for too long. Raises
        ApiError (`expired`: list anew) and Unavailable.
        """
        asked = {"watch": True, "allowWatchBookmarks": True, **query}
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._send("GET", path, asked, None, JSON)
            async with answer:
                if answer.status >= 400:
                    raise error_of(answer.status, await answer.read(), f"watch {path}")
                async for line in _lines(answer.content):
                    event = _document(line, f"watch {path}")
                    if event.get("type") == "ERROR":
                        raise event_error(event.get("object") or {})
                    yield event
        except TimeoutError as error:
            raise Unavailable(f"watch {path}: the API server is silent") from error
        except OSError as error:
            raise _lost(f"watch {path}", error) from error

    async def text(self, path: str, query: Query | None = None) -> bytes:
        """What is not JSON, such as a pod's log, whole. Raises as `request`."""
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._send("GET", path, query, None, JSON)
                async with answer:
                    data: bytes = await answer.read()
        except TimeoutError as error:
            raise Unavailable(f"the API server does not answer: GET {path}") from error
        except OSError as error:
            raise _lost(f"GET {path}", error) from error
        if answer.status >= 400:
            raise error_of(answer.status, data, f"GET {path}")
        return data

    async def websocket(self, path: str, query: str, protocols: Sequence[str]) -> Any:
        """aiohttp's ClientWebSocketResponse; who asks closes it. query: encoded, for its repeated
        `command`. Raises as `request`.
        """
        from aiohttp import ClientError, WSServerHandshakeError

        configuration, rest = self.client.configuration, self.client.rest_client
        if self.on_request is not None:
            self.on_request("GET", path)
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        url = f"{configuration.host.rstrip('/')}{path}?{query}"
        try:
            async with asyncio.timeout(CALL_S):
                return await rest.pool_manager.ws_connect(
                    url, protocols=tuple(protocols), headers=await self._headers(), max_msg_size=0
                )
        except WSServerHandshakeError as error:
            body = json.dumps({"message": error.message}).encode()
            raise error_of(error.status, body, f"GET {path}") from error
        except TimeoutError as error:
            raise Unavailable(f"the API server does not answer: GET {path}") from error
        except (ClientError, OSError) as error:
            raise _lost(f"GET {path}", ConnectionError(str(error))) from error

    async def close(self) -> None:
        for client in (*self._left, self.client):
            await client.close()

    async def _headers(self) -> dict[str, str]:
        """Who asks."""
        headers = {"User-Agent": "fleetctl"}
        for setting in (await self.client.configuration.auth_settings()).values():
            headers[str(setting["key"])] = str(setting["value"])
        return headers

    async def _send(
        self, method: str, path: str, query: Query | None, body: object, content_type: str
    ) -> Any:
        """An answer of aiohttp, not yet read. Raises OSError for whatever the network did."""
        from aiohttp import ClientError, ClientTimeout

        if self.on_request is not None:
            self.on_request("WATCH" if query and query.get("watch") else method, path)
        configuration = self.client.configuration
        headers = {"Accept": JSON, "Content-Type": content_type, **await self._headers()}
        url = configuration.host.rstrip("/") + path
        if query:
            url += "?" + urlencode({key: _text(value) for key, value in query.items()})
        # Deadlines are ours; aiohttp's own would end a watch.
        never = ClientTimeout(total=None)
        try:
            made = await self.client.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=never
            )
        except ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        return made.response

    async def _log_in_again(self) -> None:
        """A token that ran out: the kubeconfig, or its plugin, may have a newer one. What streams
        with the older one goes on: closed under it, a watch would wait for ever.
        """
        before = self.client
        async with self._logging_in:
            if self.client is not before:
                return  # somebody else was first
            made, namespace = await self._load()
            if await _credentials(made) == await _credentials(before):
                await made.close()
                return
            self.client, self.namespace = made, namespace
            self._left.append(before)
            if len(self._left) > LEFT_MAX:
                await self._left.pop(0).close()


async def connect(*, context: str = "", kubeconfig: str = "") -> Connection:
    """To the context of a kubeconfig; empty: its current one, or where there is none, this pod's
    cluster. Asks nobody but an exec plugin. Raises Refused.
    """

    async def load() -> tuple[ApiClient, str]:
        return await _loaded(context, kubeconfig)

    client, namespace = await load()
    return Connection(load, client, namespace)


async def _loaded(context: str, kubeconfig: str) -> tuple[ApiClient, str]:
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
            return ApiClient(made), (SERVICE_ACCOUNT / "namespace").read_text().strip()
        loader = await config.load_kube_config(
            config_file=named or None,
            context=context or None,
            client_configuration=made,
            persist_config=False,
        )
        chosen = loader.current_context["context"]
        return ApiClient(made), str(chosen.get("namespace") or "default")
    except FleetctlError:
        raise
    except Exception as error:
        where = f"context `{context}` of " if context else ""
        file = named or "~/.kube/config"
        raise Refused(
            f"{where}the kubeconfig `{file}` cannot be used: {error}",
            hint="`kubectl config get-contexts` lists what there is; KUBECONFIG names another file",
        ) from error


async def _credentials(client: ApiClient) -> object:
    return await client.configuration.auth_settings(), client.configuration.host


async def _lines(content: Any) -> AsyncIterator[bytes]:
    """Whole lines, however long. Raises TimeoutError after a silence."""
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


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(data: bytes, what: str) -> Object:
    try:
        found = json.loads(data or b"{}")
    except ValueError as error:
        raise Unavailable(f"{what}: the answer is not JSON", perhaps_made=True) from error
    return found if isinstance(found, dict) else {"items": found}


def _lost(what: str, error: OSError) -> Unavailable:
    refused = isinstance(error, ConnectionRefusedError) or "Cannot connect" in str(error)
    return Unavailable(
        f"{what}: the Kubernetes API server cannot be reached: {error}",
        perhaps_made=not refused,
    )
