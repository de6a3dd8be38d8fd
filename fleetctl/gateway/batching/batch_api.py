"""The batch API of a server, as OpenAI serves it: its five calls, the lines of its files, and the
search for a server that takes batches.

Each call is made once; the caller decides how to handle the errors.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    FormData,
)

from fleetctl.common.proxies import proxy_of
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.rules.failures import NO_BATCHES, SERVER_UNREACHABLE, GatewayRefusal
from fleetctl.gateway.rules.servers import Access

TAG = "fleetctl"  # of a batch's metadata
CALL_S = 60.0
FILE_S = 1800.0  # 200 MB at 1 Mbit/s
PAGE = 100
PAGES_MAX = 1000
LINE_BYTES_MAX = 64 * 2**20
MESSAGE_CHARS_MAX = 500
WITHOUT = (404, 405, 501)  # of a server that has no batch API
CLOCK_SLACK_S = 86400.0  # between the server's clock and ours

URL = "/v1/chat/completions"
# Error codes of a server that does no more work for a batch.
OVER = frozenset({"completed", "failed", "expired", "cancelled"})
# The server never began such a row.
_NOT_BEGUN = frozenset({"batch_expired", "batch_cancelled"})
# Too many tokens wait at the server already: less at once may do.
TOO_MUCH = frozenset({"token_limit_exceeded"})

NO_FOR_S = 60.0  # a server without it may have been another version
OLLAMA = "ollama"
LOOKS, AGAIN_S = 2, 2.0  # one odd reply is checked again


class BatchUnanswered(Exception):
    """A call without a usable reply. sent: the server may have carried out the call."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class BatchDenied(Exception):
    """The server refuses the call."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class BatchApi:
    """Raises BatchUnanswered and BatchDenied. url: as base_of spells it."""

    client: ClientSession
    url: str
    access: Access

    async def supports(self) -> bool:
        try:
            await self._json("GET", "/v1/batches?limit=1")
        except BatchDenied as denied:
            if denied.status in WITHOUT:
                return False
            raise
        return True

    async def upload(self, name: str, lines: Sequence[bytes]) -> str:
        """The file's id."""
        form = FormData()
        form.add_field("purpose", "batch")
        content = b"".join(lines)
        form.add_field("file", content, filename=name, content_type="application/jsonl")
        found = await self._json("POST", "/v1/files", data=form, within_s=FILE_S)
        if not found.get("id"):
            raise BatchUnanswered("the server's reply names no file", sent=True)
        return str(found["id"])

    async def create(
        self,
        file: str,
        url: str,
        tag: str,
    ) -> Mapping[str, Any]:
        body = {
            "input_file_id": file,
            "endpoint": url,
            "completion_window": "24h",
            "metadata": {TAG: tag},
        }
        return await self._json("POST", "/v1/batches", json=body)

    async def find(self, tag: str, since_s: float) -> list[Mapping[str, Any]]:
        """Returns all batches with that tag that were made since `since_s`."""
        found: list[Mapping[str, Any]] = []
        after = ""
        for _ in range(PAGES_MAX):
            page = await self._json("GET", f"/v1/batches?limit={PAGE}{after}")
            data = page.get("data")
            if not isinstance(data, list):
                raise BatchUnanswered("the server's reply is not a list of batches", sent=True)
            rows = [it for it in data if isinstance(it, dict) and it.get("id")]
            found += [it for it in rows if _read_tag(it) == tag]
            if not rows or not page.get("has_more"):
                break
            created_s = rows[-1].get("created_at")
            if isinstance(created_s, int | float) and created_s < since_s - CLOCK_SLACK_S:
                break  # the newest come first
            after = f"&after={rows[-1]['id']}"
        return found

    async def look(self, batch: str) -> Mapping[str, Any]:
        return await self._json("GET", f"/v1/batches/{batch}")

    async def cancel(self, batch: str) -> Mapping[str, Any]:
        return await self._json("POST", f"/v1/batches/{batch}/cancel")

    async def content(self, file: str) -> AsyncIterator[bytes]:
        """Its lines."""
        try:
            async with self._send("GET", f"/v1/files/{file}/content", within_s=FILE_S) as reply:
                await _check_reply(reply)
                rest = b""
                async for data in reply.content.iter_any():
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield line
                    if len(rest) > LINE_BYTES_MAX:
                        raise BatchDenied(200, f"a line has more than {LINE_BYTES_MAX} bytes")
                if rest.strip():
                    yield rest
        except (ClientError, OSError, TimeoutError) as error:
            raise _wrap_error(error) from None

    async def _json(
        self,
        method: str,
        path: str,
        *,
        within_s: float = CALL_S,
        **body: Any,
    ) -> Mapping[str, Any]:
        try:
            async with self._send(method, path, within_s=within_s, **body) as reply:
                await _check_reply(reply)
                found = await reply.json(content_type=None)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise _wrap_error(error) from None
        if not isinstance(found, dict):
            raise BatchUnanswered("the server's reply is not a JSON object", sent=True)
        return found

    def _send(
        self,
        method: str,
        path: str,
        *,
        within_s: float,
        **body: Any,
    ) -> Any:
        timeout = ClientTimeout(within_s, sock_connect=5.0)
        return self.client.request(
            method,
            self.access.url(self.url, path),
            headers=self.access.headers,
            timeout=timeout,
            allow_redirects=False,
            proxy=proxy_of(self.url),
            **body,
        )


def _read_tag(document: Mapping[str, Any]) -> object:
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        return metadata.get(TAG)
    return None


async def _check_reply(reply: ClientResponse) -> None:
    """Raises BatchDenied, and BatchUnanswered where a server or proxy gave up or wants a retry."""
    if reply.status < 300:
        return
    raw = (await reply.read())[:65536].decode(errors="replace")
    message = f"{reply.status} {raw[:MESSAGE_CHARS_MAX]}".strip()
    if reply.status == 429:
        raise BatchUnanswered(message, sent=False)
    if reply.status == 408 or (reply.status >= 500 and reply.status not in WITHOUT):
        raise BatchUnanswered(message, sent=True)
    raise BatchDenied(reply.status, message)


def _wrap_error(error: Exception) -> BatchUnanswered:
    name = type(error).__name__
    return BatchUnanswered(name, sent=not isinstance(error, ClientConnectorError))


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A line of an output or an error file. status: status of the row's own answer; None if the row
    was not asked.
    """

    custom_id: str
    status: int | None
    body: bytes = field(default=b"", repr=False)


def request_line(custom_id: str, body: Mapping[str, Any]) -> bytes:
    request = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}
    return _encode_json(request) + b"\n"


def _encode_json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can hold it, UTF-8 cannot
        return json.dumps(value).encode()


def read_line(raw: bytes) -> BatchLine | None:
    """Parses a line of such a file; returns None for any other text."""
    try:
        row = json.loads(raw)
        custom_id = str(row["custom_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    response = row.get("response")
    error = row.get("error")
    if isinstance(response, dict) and isinstance(response.get("status_code"), int):
        return BatchLine(
            custom_id, response["status_code"], _encode_json(response.get("body") or {})
        )
    if isinstance(error, dict):
        if error.get("code") in _NOT_BEGUN:
            return BatchLine(custom_id, None)
        return BatchLine(custom_id, 500, json.dumps({"error": error}).encode())
    return None


def counts_of(document: Mapping[str, Any]) -> tuple[int, int]:
    """Rows that are done, and that failed."""
    found = document.get("request_counts")
    counts = found if isinstance(found, dict) else {}
    done = counts.get("completed")
    failed = counts.get("failed")
    return (done if isinstance(done, int) else 0, failed if isinstance(failed, int) else 0)


def errors_of(document: Mapping[str, Any]) -> list[tuple[str, str, int | None]]:
    """Returns the reasons why a whole batch failed: code, message and line, from 1."""
    found = document.get("errors")
    rows = found.get("data") if isinstance(found, dict) else None
    told: list[tuple[str, str, int | None]] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            line = row.get("line")
            at = line if isinstance(line, int) else None
            told.append((str(row.get("code") or ""), str(row.get("message") or ""), at))
    return told


class BatchServers:
    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self._takes: set[str] = set()  # urls
        self._none_until_s: dict[str, float] = {}

    async def with_batches(self, endpoint: GatewayEndpoint) -> str:
        """Returns the URL of the first server with a batch API. Raises GatewayRefusal: no server
        has a batch API, or no server answers.
        """
        away = ""
        for server in endpoint.servers:
            if server.api == OLLAMA or server.sleep is not None:
                continue  # a request would start a Function's container, which has no batch API
            if server.url in self._takes:
                return server.url
            if self._none_until_s.get(server.url, 0.0) > time.monotonic():
                continue
            remote = BatchApi(self._client, server.url, endpoint.access)
            try:
                if await _takes_batches(remote):
                    self._takes.add(server.url)
                    return server.url
            except (BatchUnanswered, BatchDenied) as error:
                away = f"{server.url} cannot be asked for its batches: {error}"
                continue
            self._none_until_s[server.url] = time.monotonic() + NO_FOR_S
        if away:
            raise GatewayRefusal(503, SERVER_UNREACHABLE, f"endpoint {endpoint.name}: {away}")
        urls = ", ".join(server.url for server in endpoint.servers[:3])
        message = f"endpoint {endpoint.name}: no server has a batch API: {urls}"
        raise GatewayRefusal(404, NO_BATCHES, message)


async def _takes_batches(remote: BatchApi) -> bool:
    for _ in range(LOOKS - 1):
        with suppress(BatchDenied):
            if await remote.supports():
                return True
        await asyncio.sleep(AGAIN_S)
    return await remote.supports()
