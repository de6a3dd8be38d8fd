"""A try of a call at a server, and its usage, however it ends; a stream is read as whole lines to
pass on, with its text and tokens counted.
"""

from __future__ import annotations

import json
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

from fleetctl.gateway.asking.call import EndpointCall
from fleetctl.gateway.call_spans import CallSpan
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import (
    NO_ANSWER,
    UNHEARD,
    BadAnswer,
    GatewayRefusal,
    bad_answer,
    bad_piece,
    parse_answer,
    retry_after_s,
)
from fleetctl.gateway.rules.servers import KEY, UpstreamServer
from fleetctl.gateway.rules.usage import (
    NOTHING,
    TokenCount,
    count_lost,
    count_used,
    count_written,
    count_written_bytes,
    usage_of,
    used_by,
)
from fleetctl.guest.remote.relay.http import to_task

LINE_BYTES_MAX = 1 << 20  # passed on unread beyond it
_DATA = b"data:"

CONNECT_S = 5.0
ANSWER_BYTES_MAX = 64 * 2**20
_OPENAI_STREAMS = ("/v1/chat/completions", "/v1/completions")
_UNKNOWN_FIELD = (400, 422)  # statuses
_MAX = "max_tokens"
_MAX_ALL = "max_completion_tokens"
_JSON = {"Content-Type": "application/json; charset=utf-8"}
Begin = Callable[[int, dict[str, str]], Awaitable[None]]
Piece = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True)
class AnswerStream:
    """A stream of either protocol: server-sent events, or a JSON object a line.

    hide_usage: the task did not request the piece with the usage; the gateway did. span: takes note
    of each piece.
    """

    hide_usage: bool = False
    span: CallSpan | None = field(default=None, repr=False)
    usage: TokenCount | None = None
    first: dict[str, Any] | None = field(default=None, repr=False)
    _bytes: int = 0
    _pieces: int = 0
    _rest: bytes = field(default=b"", repr=False)
    _hidden: bool = False  # and the empty line after it

    @property
    def came(self) -> int:
        """Returns at least as many tokens as were written: no token is shorter than a byte or a
        piece.
        """
        return max(self._bytes, self._pieces)

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes of `data` to pass on."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        shown = [line + b"\n" for line in lines if self._shows(line)]
        if len(self._rest) > LINE_BYTES_MAX:
            self._bytes += len(self._rest)
            shown.append(self._rest)
            self._rest = b""
        return b"".join(shown)

    def end(self) -> bytes:
        """Returns the rest to pass on when the stream has ended."""
        rest = self._rest
        self._rest = b""
        if rest and self._shows(rest):
            return rest
        return b""

    def _shows(self, line: bytes) -> bool:
        text = line.strip()
        if not text:
            hidden = self._hidden
            self._hidden = False
            return not hidden
        if text.startswith(_DATA):
            text = text[len(_DATA) :].lstrip()
        if not text.startswith(b"{"):
            return True  # `[DONE]`, a comment, the name of an event
        try:
            reply: dict[str, Any] = json.loads(text)
        except ValueError:
            self._bytes += len(text)
            return True
        self.first = reply if self.first is None else self.first
        if self.span is not None:
            self.span.note_reply(reply)
        usage = usage_of(reply)
        if usage is not None:
            # In some protocols one event counts the prompt, and another one the answer.
            before = self.usage or TokenCount()
            inward = max(before.inward, usage.inward)
            self.usage = TokenCount(inward, max(before.outward, usage.outward))
        if self.hide_usage and "usage" in reply and not reply.get("choices"):
            self._hidden = True
            return False
        self._pieces += 1
        self._bytes += count_written_bytes(reply)
        return True


class AttemptFailed(Exception):
    """A try without an answer. status: status of the server's error, 408 for no answer in time,
    None for a connection that failed or was lost. answer: the server's error.
    """

    def __init__(
        self,
        status: int | None,
        answer: CallAnswer | None,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(status)
        self.status = status
        self.answer = answer
        self.pause_s = pause_s


@dataclass(slots=True)
class CallAttempt:
    """One try of a call. sent: a connection to a server was made, so that it may have got the
    request.
    """

    call: EndpointCall
    server: UpstreamServer
    worst: TokenCount
    sent: bool = False
    asked_usage: bool = False  # the gateway requests a stream's usage, the task did not
    learnt: bool = False  # a refusal changed the form of requests to the server
    begun_s: float = field(default_factory=time.monotonic)
    _heard_s: float = 0.0
    _stream: AnswerStream | None = None
    _known: TokenCount | None = None

    def used(self) -> TokenCount:
        """Returns at least the tokens that the server can have counted by now."""
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
        return count_lost(self.call.body, came, self.worst, quiet_s=quiet_s)

    async def run(self, begin: Begin | None, piece: Piece | None) -> CallAnswer:
        """Returns the whole answer. With `begin` and `piece` passes a stream on as it comes, and
        returns an empty body. Raises AttemptFailed if the answer had not begun, GatewayRefusal for
        a useless answer."""
        call, endpoint = self.call, self.call.endpoint
        headers = {**call.headers, **headers_of(endpoint, self.server)}
        timeout = ClientTimeout(endpoint.timeout_s, connect=CONNECT_S)
        body = self._body()
        begun = False
        _attempt.set(self)
        if call.span is not None:
            call.span.note_server(self.server.url)
        try:
            async with call.state.client.post(
                endpoint.url_of(self.server, call.path),
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
                    raise GatewayRefusal(502, NO_ANSWER, message)
                begun = True
                if call.streams and _is_stream(reply, call.path):
                    answer = await self._pass_on(reply, begin, piece)
                else:
                    answer = await self._read_answer(reply)
                self.server.succeeded()
                return answer
        except (ClientError, TimeoutError, OSError) as error:
            if isinstance(error, ClientConnectorError | ConnectionTimeoutError):
                self.sent = False
            if begun:
                message = f"endpoint {endpoint.name}: the answer broke off"
                raise GatewayRefusal(502, NO_ANSWER, message) from None
            timed_out = self.sent and isinstance(error, TimeoutError)
            # A healthy server may close a connection that was kept open just when it is used.
            self._blame(408 if timed_out else None)
            raise AttemptFailed(408 if timed_out else None, None) from None

    def _body(self) -> Mapping[str, Any]:
        """Returns the body for the server. A stream requests its usage, too: without it the cost
        would stay unknown.
        """
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
        """Handles an error of the server's: no output was written, unless a proxy gave up."""
        answer = CallAnswer(reply.status, _task_headers(reply), await _read_body(reply))
        found = count_used(self.call.body, answer.body, self.worst)
        if not found.estimated:
            self._known = found
        elif reply.status not in UNHEARD:
            self._known = NOTHING
        if reply.status >= 500:
            self._blame(reply.status)
        else:
            self.server.succeeded()
        if reply.status in _UNKNOWN_FIELD:
            self._learn_field(answer.body)
        raise AttemptFailed(reply.status, answer, retry_after_s(reply.headers, time.time()))

    async def _read_answer(self, reply: ClientResponse) -> CallAnswer:
        """Reads a whole answer. Raises AttemptFailed for a bad answer with a good status."""
        body = await _read_body(reply)
        document = parse_answer(body)
        found = bad_answer(self.call.path, body, document)
        if found is not None:
            raise self._bad(found, document, length_bytes=len(body))
        self._known = used_by(document, self.call.body, self.worst)
        if self.call.span is not None:
            self.call.span.note_reply(document)
        return CallAnswer(reply.status, _task_headers(reply), body)

    def _bad(
        self,
        found: BadAnswer,
        document: Any,
        *,
        length_bytes: int = 0,
    ) -> AttemptFailed:
        """Returns the failure for an error in the form of an answer. Its cost is the server's
        count, or that of the part of an answer that arrived.
        """
        came = document is None and not found.page
        partly = count_written(self.call.body, length_bytes, self.worst) if came else NOTHING
        self._known = usage_of(document) or partly
        if found.status >= 500:
            self._blame(found.status)
        return AttemptFailed(found.status, CallAnswer(found.status, dict(_JSON), found.body))

    def _learn_field(self, refusal: bytes) -> None:
        """Records from a refusal that the server lacks a field, or has another name for it."""
        server = self.server
        served = self.call.endpoint.served_name(self.call.model)
        if self.asked_usage and b"stream_options" in refusal and server.stream_usage:
            server.stream_usage = False
            self.learnt = True
        named = _MAX in self.call.body and _MAX_ALL not in self.call.body
        if named and _MAX_ALL.encode() in refusal and served not in server.completion_tokens:
            server.completion_tokens.add(served)
            self.learnt = True

    def _blame(self, status: int | None) -> None:
        """Records a failure of the server: a refused connection, or a failed request that may be
        its fault.
        """
        server = self.server
        now_s = time.monotonic()
        if not self.sent:
            server.refused(now_s)
            return
        last = self.call.endpoint.alone(server)
        server.failed(
            now_s,
            caller=self.call.grant.owner,
            status=status,
            last=last,
        )

    async def _pass_on(
        self,
        reply: ClientResponse,
        begin: Begin | None,
        piece: Piece | None,
    ) -> CallAnswer:
        stream = self._stream = AnswerStream(self.asked_usage, self.call.span)
        headers = _task_headers(reply)
        kept = []
        length_bytes = 0
        begun = False

        async def pass_on(shown: bytes) -> None:
            nonlocal begun
            if not begun and stream.first is not None and (bad := bad_piece(stream.first)):
                raise self._bad(bad, stream.first)
            if not begun and begin is not None:
                await begin(reply.status, headers)
            begun = True
            if shown and piece is not None:
                await piece(shown)

        async for data in reply.content.iter_any():
            self._heard_s = time.monotonic()
            if shown := stream.feed(data):
                await pass_on(shown)
            if piece is None:
                length_bytes = _check_length(length_bytes + len(shown))
                kept.append(shown)
        rest = stream.end()
        await pass_on(rest)
        self._known = stream.usage or count_written(self.call.body, stream.came, self.worst)
        return CallAnswer(reply.status, headers, b"".join([*kept, rest]) if piece is None else b"")


def headers_of(endpoint: GatewayEndpoint, server: UpstreamServer) -> dict[str, str]:
    own = {KEY: server.key} if server.key else {}
    return {**endpoint.access.headers, **own}


_attempt: ContextVar[CallAttempt] = ContextVar("attempt")


class AttemptConnector(TCPConnector):
    """Notifies an attempt when it has a connection: before that, no request was sent."""

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        attempt = _attempt.get(None)
        if attempt is not None:
            attempt.sent = True
        return connection


def _is_stream(reply: ClientResponse, path: str) -> bool:
    """Returns True for an event stream; False for a page, or for one document instead of events."""
    whole = "text/html", "application/json"
    return reply.content_type not in (whole if path.startswith("/v1/") else whole[:1])


def _task_headers(reply: ClientResponse) -> dict[str, str]:
    """Returns the headers that the task gets."""
    kind = reply.headers.get("Content-Type", "application/json")
    return {"Content-Type": kind, **to_task(reply.headers)}


async def _read_body(reply: ClientResponse) -> bytes:
    if (reply.content_length or ANSWER_BYTES_MAX) < ANSWER_BYTES_MAX:
        return await reply.read()
    kept = []
    length_bytes = 0
    async for data in reply.content.iter_any():
        length_bytes = _check_length(length_bytes + len(data))
        kept.append(data)
    return b"".join(kept)


def _check_length(length_bytes: int) -> int:
    if length_bytes > ANSWER_BYTES_MAX:
        message = f"the answer has more than {ANSWER_BYTES_MAX} bytes"
        raise GatewayRefusal(502, NO_ANSWER, message)
    return length_bytes
