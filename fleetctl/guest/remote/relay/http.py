"""Reads and writes HTTP/1.1 over asyncio's streams, as far as clients of model servers use it.

Used by client.py. A body is read whole; an answer is written whole or in pieces.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fleetctl.guest.task.text import encode_compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024  # as the gateway takes them
PATHS_OF_TOKENS = "/t/"  # for clients that send no token


# Headers that pass between a task and a model server. Those of the account, the key and the address
# do not: the endpoint sets them.
_TO_SERVER = ("http-referer", "traceparent", "tracestate", "baggage", "idempotency-key")
_TO_SERVER_PREFIXES = ("x-", "openai-", "anthropic-")
_NOT_TO_SERVER = (
    *("openai-organization", "openai-project", "x-api-key", "x-goog-api-key", "x-real-ip"),
    "x-should-retry",
)
_NOT_TO_SERVER_PREFIXES = ("x-fleetctl-", "x-forwarded-", "x-stainless-")
_TO_TASK = (
    *("retry-after", "retry-after-ms", "x-should-retry", "x-request-id", "request-id"),
    *("openai-processing-ms", "openai-version"),
)
_TO_TASK_PREFIXES = ("x-ratelimit-", "ratelimit-", "anthropic-ratelimit-")


def to_server(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns a task's request headers for a model server, by their names in lower case."""
    named = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in named
        if (name in _TO_SERVER or name.startswith(_TO_SERVER_PREFIXES))
        and name not in _NOT_TO_SERVER
        and not name.startswith(_NOT_TO_SERVER_PREFIXES)
    }


def to_task(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns a model server's answer headers for the task, by their names in lower case."""
    named = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in named
        if name in _TO_TASK or name.startswith(_TO_TASK_PREFIXES)
    }


class ErrorReply(Exception):
    """An error that the client receives in place of an answer. status: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def body(self) -> bytes:
        """Returns the error in the gateway's format."""
        error = {"message": str(self), "type": "fleetctl", "code": self.status}
        return encode_compact({"error": error}).encode()


class RequestHead:
    """A request's head. path: with its query, without a token in it; token: "" when missing."""

    def __init__(
        self,
        method: str,
        target: str,
        version: str,
        headers: dict[str, str],
    ) -> None:
        self.method = method
        self.headers = headers
        self.path, self.token = _split_token(target, headers)
        self.chunks = version == "HTTP/1.1"  # the client reads answers in chunks
        self.keeps_alive = self.chunks and headers.get("connection", "").lower() != "close"


async def read_head(reader: asyncio.StreamReader) -> Optional[RequestHead]:
    """Reads a head; None when the client has left. Raises ErrorReply."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise ErrorReply(431, f"the head has more than {HEAD_BYTES_MAX} bytes") from None
    first, *lines = text.lstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[1].startswith("/"):
        raise ErrorReply(400, "the first line is not `METHOD /path HTTP/1.1`")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return RequestHead(parts[0], parts[1], parts[2], headers)


async def read_body(
    head: RequestHead,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bytes:
    """Reads a body. Raises ErrorReply, and IncompleteReadError when the client leaves."""
    chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
    length = head.headers.get("content-length", "0")
    if not chunked and not length.isdecimal():
        raise ErrorReply(400, "Content-Length is not a number")
    if not chunked and int(length) > BODY_BYTES_MAX:
        raise _too_long()
    if head.headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return await (_read_chunks(reader) if chunked else reader.readexactly(int(length)))


def write_whole(
    writer: asyncio.StreamWriter,
    head: RequestHead,
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> None:
    _write_head(writer, head, status, {**headers, "Content-Length": str(len(body))})
    writer.write(body)


def write_head(
    writer: asyncio.StreamWriter,
    head: RequestHead,
    status: int,
    headers: dict[str, str],
) -> None:
    """Writes the head of an answer whose pieces follow. Without chunks the end of the connection
    ends the answer.
    """
    if head.chunks:
        headers = {**headers, "Transfer-Encoding": "chunked"}
    else:
        head.keeps_alive = False
    _write_head(writer, head, status, headers)


def write_piece(
    writer: asyncio.StreamWriter,
    head: RequestHead,
    data: bytes,
) -> None:
    """Writes a piece of an answer. data: b"" ends the answer."""
    if not head.chunks:
        writer.write(data)
    else:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _write_head(
    writer: asyncio.StreamWriter,
    head: RequestHead,
    status: int,
    headers: dict[str, str],
) -> None:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    more = {} if head.keeps_alive else {"Connection": "close"}
    lines = [f"{name}: {value}" for name, value in {**headers, **more}.items()]
    text = "\r\n".join([f"HTTP/1.1 {status} {phrase}", *lines, "", ""])
    writer.write(text.encode("latin-1", "replace"))


def _split_token(target: str, headers: dict[str, str]) -> tuple[str, str]:
    """Returns (path, token)."""
    if target.startswith(PATHS_OF_TOKENS):
        token, _, rest = target[len(PATHS_OF_TOKENS) :].partition("/")
        return "/" + rest, token
    scheme, _, token = headers.get("authorization", "").partition(" ")
    # Clients of `/v1/messages` send their key in this header.
    return target, token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        except (ValueError, asyncio.LimitOverrunError):
            raise ErrorReply(400, "a chunk has no length") from None
        size += length
        if length < 0 or size > BODY_BYTES_MAX:
            raise _too_long()
        if length == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass  # trailers
            return b"".join(parts)
        parts.append(await reader.readexactly(length))
        await reader.readexactly(2)


def _too_long() -> ErrorReply:
    return ErrorReply(413, f"the body has more than {BODY_BYTES_MAX} bytes")
