"""The five calls of a server's batch API, as OpenAI serves it. Each is made once; the caller
decides how to handle the errors.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
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
from fleetctl.gateway.rules.access import Access

TAG = "fleetctl"  # of a batch's metadata
CALL_S = 60.0
FILE_S = 1800.0  # 200 MB at 1 Mbit/s
PAGE = 100
PAGES_MAX = 1000
LINE_BYTES_MAX = 64 * 2**20
MESSAGE_CHARS_MAX = 500
WITHOUT = (404, 405, 501)  # of a server that has no batch API
CLOCK_SLACK_S = 86400.0  # between the server's clock and ours


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
