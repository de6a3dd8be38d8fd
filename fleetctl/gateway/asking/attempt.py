"""One try of a call at one server, and what it used, however it ends."""

import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientTimeout,
    ConnectionTimeoutError,
    TCPConnector,
)
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from fleetctl.gateway.asking.call import Call
from fleetctl.gateway.asking.stream import Stream
from fleetctl.gateway.endpoints import Endpoint
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.refusal import NO_ANSWER, Refusal
from fleetctl.gateway.rules.retry import UNHEARD, retry_after_s
from fleetctl.gateway.rules.servers import Server
from fleetctl.gateway.rules.sleep import KEY
from fleetctl.gateway.rules.usage import NOTHING, Tokens, lost, used, written

CONNECT_S = 5.0
ANSWER_BYTES_MAX = 64 * 2**20
_OPENAI_STREAMS = ("/v1/chat/completions", "/v1/completions")
_UNKNOWN_FIELD = (400, 422)  # statuses
_MAX, _MAX_ALL = "max_tokens", "max_completion_tokens"
Begin = Callable[[int, str], Awaitable[None]]
Piece = Callable[[bytes], Awaitable[None]]


class Failed(Exception):
    """A try without an answer. status: of the server's error, 408 for none in time, None for a
    connection that was not made or was lost. answer: the server's error.
    """

    def __init__(self, status: int | None, answer: Answer | None, pause_s: float = 0.0) -> None:
        super().__init__(status)
        self.status, self.answer, self.pause_s = status, answer, pause_s


@dataclass(slots=True)
class Attempt:
    """sent: there was a connection to a server, so that it may have been asked."""

    call: Call
    server: Server
    worst: Tokens
    sent: bool = False
    asked_usage: bool = False  # of a stream, though the task did not
    learnt: bool = False  # by its refusal, how the server is to be asked
    begun_s: float = field(default_factory=time.monotonic)
    _heard_s: float = 0.0
    _stream: Stream | None = None
    _known: Tokens | None = None

    def used(self) -> Tokens:
        """At least what the server can have counted by now."""
        if not self.sent:
            return NOTHING
        if self._known is not None:
            return self._known
        came = 0
        if self._stream is not None:
            if self._stream.usage is not None:
                return self._stream.usage
            came = self._stream.came
        quiet_s = time.monotonic() - max(self.begun_s, self._heard_s)
        return lost(self.call.body, came, self.worst, quiet_s=quiet_s)

    async def run(self, begin: Begin | None, piece: Piece | None) -> Answer:
        """The whole answer, or, with `begin` and `piece`, a stream that was passed on as it came,
        with an empty body. Raises Failed: the answer had not begun; Refusal: it is of no use.
        """
        call, endpoint = self.call, self.call.endpoint
        headers = headers_of(endpoint, self.server)
        timeout = ClientTimeout(endpoint.timeout_s, connect=CONNECT_S)
        body = self._body()
        begun = False
        _attempt.set(self)
        try:
            async with call.state.client.post(
                self.server.url + call.path,
                json=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=self.server.proxy,
            ) as reply:
                self._heard_s = time.monotonic()
                if reply.status >= 400:
                    await self._refused(reply)
                if reply.status >= 300:
                    self._known = NOTHING
                    message = f"endpoint {endpoint.name}: the server redirects elsewhere"
                    raise Refusal(502, NO_ANSWER, message)
                begun = True
                self.server.succeeded()
                if call.streams:
                    answer = await self._pass_on(reply, begin, piece)
                else:
                    answer = Answer(reply.status, _kind(reply), await _whole(reply))
                    self._known = used(call.body, answer.body, self.worst)
                return answer
        except (ClientError, TimeoutError, OSError) as error:
            if isinstance(error, ClientConnectorError | ConnectionTimeoutError):
                self.sent = False
            if begun:
                message = f"endpoint {endpoint.name}: the answer broke off"
                raise Refusal(502, NO_ANSWER, message) from None
            timed_out = self.sent and isinstance(error, TimeoutError)
            # A connection that was kept open may end just when it is used, of a healthy server.
            self._blame(408 if timed_out else None)
            raise Failed(408 if timed_out else None, None) from None

    def _body(self) -> Mapping[str, Any]:
        """As the server is asked. A stream is asked for its usage, too: without it nobody would
        know what it cost."""
        call, body = self.call, self.call.body
        served = call.endpoint.served_name(call.model)
        if call.model:
            body = {**body, "model": served}
        if served in self.server.completion_tokens and _MAX in body:
            body = {(_MAX_ALL if it == _MAX else it): value for it, value in body.items()}
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        streams = call.streams and call.path in _OPENAI_STREAMS and self.server.stream_usage
        self.asked_usage = streams and not options.get("include_usage")
        if not self.asked_usage:
            return body
        return {**body, "stream_options": {**options, "include_usage": True}}

    async def _refused(self, reply: ClientResponse) -> None:
        """An error of the server's: nothing was written, unless it is of a proxy that gave up."""
        headers = _kind(reply)
        if "Retry-After" in reply.headers:
            headers["Retry-After"] = reply.headers["Retry-After"]
        answer = Answer(reply.status, headers, await _whole(reply))
        found = used(self.call.body, answer.body, self.worst)
        if not found.estimated:
            self._known = found
        elif reply.status not in UNHEARD:
            self._known = NOTHING
        if reply.status >= 500:
            self._blame(reply.status)
        else:
            self.server.succeeded()
        if reply.status in _UNKNOWN_FIELD:
            self._learn(answer.body)
        raise Failed(reply.status, answer, retry_after_s(reply.headers, time.time()))

    def _learn(self, refusal: bytes) -> None:
        """A field that the server does not know is left out, or named as it wants it."""
        server, served = self.server, self.call.endpoint.served_name(self.call.model)
        if self.asked_usage and b"stream_options" in refusal and server.stream_usage:
            server.stream_usage, self.learnt = False, True
        named = _MAX in self.call.body and _MAX_ALL not in self.call.body
        if named and _MAX_ALL.encode() in refusal and served not in server.completion_tokens:
            server.completion_tokens.add(served)
            self.learnt = True

    def _blame(self, status: int | None) -> None:
        """The server refused the connection, or may be at fault with what it made of it."""
        server, now_s = self.server, time.monotonic()
        if not self.sent:
            server.refused(now_s)
            return
        last = self.call.endpoint.alone(server)
        server.failed(now_s, caller=self.call.grant.owner, status=status, last=last)

    async def _pass_on(
        self, reply: ClientResponse, begin: Begin | None, piece: Piece | None
    ) -> Answer:
        stream = self._stream = Stream(self.asked_usage)
        kind, kept = _kind(reply), []
        if begin is not None:
            await begin(reply.status, kind["Content-Type"])
        length_bytes = 0
        async for data in reply.content.iter_any():
            self._heard_s = time.monotonic()
            shown = stream.feed(data)
            if shown and piece is not None:
                await piece(shown)
            elif piece is None:
                length_bytes = _bounded(length_bytes + len(shown))
                kept.append(shown)
        rest = stream.end()
        if rest and piece is not None:
            await piece(rest)
        self._known = stream.usage or written(self.call.body, stream.came, self.worst)
        return Answer(reply.status, kind, b"".join([*kept, rest]) if piece is None else b"")


def headers_of(endpoint: Endpoint, server: Server) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    return headers | {KEY: server.key} if server.key else headers


_attempt: ContextVar[Attempt] = ContextVar("attempt")


class Connector(TCPConnector):
    """Tells an attempt when it has a connection: before that, nothing was asked of anybody."""

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        attempt = _attempt.get(None)
        if attempt is not None:
            attempt.sent = True
        return connection


def _kind(reply: ClientResponse) -> dict[str, str]:
    return {"Content-Type": reply.headers.get("Content-Type", "application/json")}


async def _whole(reply: ClientResponse) -> bytes:
    if (reply.content_length or ANSWER_BYTES_MAX) < ANSWER_BYTES_MAX:
        return await reply.read()
    kept, length_bytes = [], 0
    async for data in reply.content.iter_any():
        length_bytes = _bounded(length_bytes + len(data))
        kept.append(data)
    return b"".join(kept)


def _bounded(length_bytes: int) -> int:
    if length_bytes > ANSWER_BYTES_MAX:
        message = f"the answer has more than {ANSWER_BYTES_MAX} bytes"
        raise Refusal(502, NO_ANSWER, message)
    return length_bytes
