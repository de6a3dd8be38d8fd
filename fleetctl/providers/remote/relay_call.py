"""Sends one request of a sandbox to the gateway over loopback, reads and writes the messages on a
relay's line, and queues answers on their way back.

A request goes to the gateway with its number: the gateway asks a model once, even for repeated
requests, and sends the answer again from where the sandbox has it. A sandbox may write anything: an
invalid line is no message.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.common.event_loop import wait_or_wake
from fleetctl.guest.remote.relay.http import to_task
from fleetctl.providers.contract.base import EndpointAccess
from fleetctl.providers.remote.sandboxes.exec_channel import ExecChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp


log = logging.getLogger("fleetctl.providers")

CONNECT_S = 5.0
CANCEL_S = 5.0
AGAIN_S, AGAIN_MAX_S = 0.1, 2.0  # while the gateway starts again
AWAY_S = 120.0  # for it to be there; then the task gets an error
BACK_PREFIX = "x-fleetctl-"

BODY_BYTES_MAX = 16 * 1024 * 1024
# A longest body, encoded, and its head.
LINE_CHARACTERS_MAX = BODY_BYTES_MAX * 4 // 3 + 1024 * 1024
PIECE_BYTES_MAX = 1024 * 1024  # of an answer in one message
TOLD_HEADERS = ("content-type", "accept")
_NUMBER = re.compile(r"[0-9a-z.]{1,64}")
_METHOD = re.compile(r"[A-Z]{1,16}")
_PATH = re.compile(r"/[!-~]{0,8191}")

GAP_S = 0.05  # between two writes that no answer ends


class _GatewayUnreachable(Exception):
    """Raised when no part of an answer came."""


async def ask_gateway(
    client: aiohttp.ClientSession,
    access: Callable[[], EndpointAccess],
    request: RelayRequest,
    outbox: Outbox,
) -> None:
    """Puts the answer into the outbox. access: as it is now; the gateway may come to listen
    elsewhere.
    """
    loop = asyncio.get_running_loop()
    again_s = AGAIN_S
    until_s = loop.time() + AWAY_S
    while True:
        try:
            await _try_ask(client, access(), request, outbox)
            return
        except _GatewayUnreachable:
            if loop.time() > until_s:
                _refuse_request(request, outbox)
                return
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, AGAIN_MAX_S)


async def cancel_request(
    client: aiohttp.ClientSession,
    access: EndpointAccess,
    number: str,
) -> None:
    """Asks the gateway to send no more requests under that number, as far as it can be reached."""
    import aiohttp

    url = f"{access.base_url.rstrip('/')}/asked/{number}"
    headers = _auth_headers(access)
    try:
        timeout = aiohttp.ClientTimeout(CANCEL_S)
        async with client.delete(url, headers=headers, timeout=timeout) as reply:
            await reply.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        log.info("call not cancelled", extra={"error": type(error).__name__})


async def _try_ask(
    client: aiohttp.ClientSession,
    access: EndpointAccess,
    request: RelayRequest,
    outbox: Outbox,
) -> None:
    """Sends the request once, and passes the reply on. Raises _GatewayUnreachable."""
    import aiohttp
    from yarl import URL

    url = URL(access.base_url.rstrip("/") + request.path, encoded=True)
    own = {"X-Fleetctl-Number": request.number, "X-Fleetctl-Have": str(request.have)}
    headers = {**request.headers, **_auth_headers(access), **own}
    timeout = aiohttp.ClientTimeout(None, sock_connect=CONNECT_S)
    begun = False
    try:
        async with client.request(
            request.method,
            url,
            data=request.body or None,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as reply:
            if request.have and reply.status >= 400:
                outbox.break_off(request.number)  # its beginning is there, and its rest nowhere
                return
            whole = await reply.read() if reply.content_length is not None else b""
            begun = True
            outbox.begin(request.number, reply.status, _reply_headers(reply.headers))
            if whole:
                outbox.piece(request.number, whole)
            async for data in reply.content.iter_any():
                outbox.piece(request.number, data)
            outbox.end(request.number)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        if not begun:
            raise _GatewayUnreachable from error
        outbox.break_off(request.number)


def _auth_headers(access: EndpointAccess) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.token}"}


def _reply_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of an answer that clients go by."""
    own = {name: it for name, it in headers.items() if name.lower().startswith(BACK_PREFIX)}
    return {"content-type": headers.get("content-type", ""), **to_task(headers), **own}


def _refuse_request(request: RelayRequest, outbox: Outbox) -> None:
    if request.have:
        outbox.break_off(request.number)
        return
    message = f"the gateway of the controller has not answered for {AWAY_S:.0f} s"
    error = {"message": message, "type": "fleetctl", "code": 503}
    outbox.begin(request.number, 503, {"Content-Type": "application/json"})
    outbox.piece(request.number, json.dumps({"error": error}).encode())
    outbox.end(request.number)


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """have: bytes of its answer that the client was given over an earlier line."""

    number: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    have: int


@dataclass(frozen=True, slots=True)
class RelayCancelled:
    """The client of that request left."""

    number: str


@dataclass(frozen=True, slots=True)
class RelayOver:
    """Notes that the run has ended and sends no more requests."""


@dataclass(slots=True)
class RelayAnswer:
    """A change of an answer. end: it is complete; broken: it never will be."""

    status: int = 0  # 0: sent before
    headers: Mapping[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray, repr=False)
    end: bool = False
    broken: bool = False


def read_message(line: str) -> RelayRequest | RelayCancelled | RelayOver | None:
    """Returns the message; None for an invalid line, and for a sign that the guest lives."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("e") == "over":
        return RelayOver()
    number = str(fields.get("n", ""))
    if not _NUMBER.fullmatch(number):
        return None
    if fields.get("cancel"):
        return RelayCancelled(number)
    return _parse_request(number, fields)


def write_answer(number: str, news: RelayAnswer) -> str:
    """Returns the lines for a change of an answer."""
    pieces = [
        news.data[at : at + PIECE_BYTES_MAX] for at in range(0, len(news.data), PIECE_BYTES_MAX)
    ]
    messages: list[dict[str, object]] = [{"n": number, **_encode_piece(bytes(it))} for it in pieces]
    messages = messages or [{"n": number}]
    if news.status:
        messages[0] |= {"status": news.status, "headers": dict(news.headers)}
    messages[-1] |= {name: True for name in ("end", "broken") if getattr(news, name)}
    return "".join(json.dumps(it, separators=(",", ":")) + "\n" for it in messages)


def _parse_request(number: str, fields: Mapping[str, object]) -> RelayRequest | None:
    method = str(fields.get("method", ""))
    path = str(fields.get("path", ""))
    if not (_METHOD.fullmatch(method) and _PATH.fullmatch(path)):
        return None

    body = _parse_body(fields)
    headers = fields.get("headers")
    have = fields.get("have")
    if body is None:
        return None
    if not isinstance(headers, dict) or not isinstance(have, int) or have < 0:
        return None
    headers_kept = {name: str(headers[name]) for name in TOLD_HEADERS if name in headers}
    if any(not value.isprintable() for value in headers_kept.values()):
        return None
    return RelayRequest(
        number,
        method,
        path,
        headers_kept,
        body,
        have,
    )


def _parse_body(fields: Mapping[str, object]) -> bytes | None:
    try:
        if "b64" in fields:
            body = base64.b64decode(str(fields["b64"]), validate=True)
        else:
            body = str(fields.get("body", "")).encode()
    except (binascii.Error, ValueError):
        return None
    if len(body) <= BODY_BYTES_MAX:
        return body
    return None


def _encode_piece(data: bytes) -> dict[str, str]:
    """Returns the bytes as text where they are text: a cut may go through a letter."""
    try:
        return {"piece": data.decode()}
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}


class Outbox:
    """Queues answers on their way to a sandbox. Each write there is a call of the provider's:
    answers that are ready at the same time go in one, and the pieces of streams wait a moment for
    each other.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, RelayAnswer] = {}
        self._any, self._hurry = asyncio.Event(), asyncio.Event()

    def begin(
        self,
        number: str,
        status: int,
        headers: Mapping[str, str],
    ) -> None:
        """The head of an answer, which goes with its first piece or its end."""
        news = self._waiting.setdefault(number, RelayAnswer())
        news.status = status
        news.headers = headers

    def piece(self, number: str, data: bytes) -> None:
        self._waiting.setdefault(number, RelayAnswer()).data += data
        self._any.set()

    def end(self, number: str) -> None:
        self._waiting.setdefault(number, RelayAnswer()).end = True
        self._any.set()
        self._hurry.set()

    def break_off(self, number: str) -> None:
        self._waiting.setdefault(number, RelayAnswer()).broken = True
        self._any.set()
        self._hurry.set()

    def drop(self, number: str) -> None:
        """Drops an answer that no caller waits for any more."""
        self._waiting.pop(number, None)

    async def send(self, line: ExecChannel) -> None:
        """Sends until cancelled. Raises Unavailable when the line takes no more."""
        loop = asyncio.get_running_loop()
        last_s = -math.inf
        while True:
            await self._any.wait()
            left_s = last_s + GAP_S - loop.time()
            if left_s > 0:
                await wait_or_wake(self._hurry, left_s)
            self._any.clear()
            self._hurry.clear()
            if text := self._take_ready():
                await line.send(text)
                last_s = loop.time()

    def _take_ready(self) -> str:
        ready = {number: it for number, it in self._waiting.items() if _is_ready(it)}
        for number in ready:
            del self._waiting[number]
        return "".join(write_answer(number, it) for number, it in ready.items())


def _is_ready(news: RelayAnswer) -> bool:
    return bool(news.data) or news.end or news.broken
