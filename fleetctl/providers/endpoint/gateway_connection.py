"""The connection to the gateway: one WebSocket that carries the calls of all rows, the packages
that it needs, and the meaning of its reply for a row.

fleetctl/gateway/data/idempotent_calls.py defines the frames. The connection never logs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.common.install import install_hint
from fleetctl.common.text import format_duration, format_timestamp
from fleetctl.controllers.history.retry_limits import ANSWER_FILTERED
from fleetctl.providers.contract.account import Account, CheckResult
from fleetctl.providers.contract.base import EndpointAccess
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse


PATH = "/v1/chat/completions"
BATCH = "/batch"  # before it
CALLS = "/calls"
CONNECT_S = 10.0
HEARTBEAT_S = 30.0  # a gateway that hangs is a broken line
AWAY_S = 1.0  # a gateway that ended is started again within a second or two
ANSWER_BYTES_MAX = 64 << 20  # an answer that may be kept is far smaller


# A reply is an answer, a failure that ends the attempt, or the report that no model was called. The
# last is raised as Unavailable: the row waits, and no attempt is consumed.

TEXT_CHARS_MAX = 500  # of a server's own words in a message
SERVER_RESTS_S = 2.0
SERVER_PAUSE_MAX_S = 600.0
CALL_REFUSED = "CallRefused"
MAX_TOKENS_WAY_OUT = (
    "; give `parameters: {extra: {max_completion_tokens: N}}` in place of `maxTokens`"
)
BROKEN = 502  # of the gateway, or of a proxy before the server: the server is unreachable
PRICE_UNKNOWN = "give the model in `prices` of the endpoint; `{}` is a price of 0"
WITHOUT_BATCHES = "leave `mode: batch` out, or name an endpoint whose server has a batch API"

EXTRA = "endpoints"


class GatewayConnection:
    """Opened with the first call, and again after it broke: most controllers never ask a prompt."""

    def __init__(self) -> None:
        self._client: ClientSession | None = None
        self._open: _OpenSocket | None = None
        self._opening = asyncio.Lock()

    async def post(
        self,
        access: EndpointAccess,
        endpoint: str,
        number: int,
        body: Mapping[str, Any],
        *,
        batched: bool = False,
    ) -> GatewayReply:
        """Sends the request under the number; a repeated one gets the answer that the gateway has
        kept.
        batched: it may come by a batch, hours later. Raises Unavailable when the line broke,
        whatever became of the call.
        """
        line = await self._open_socket(access)
        path = f"/endpoints/{endpoint}{BATCH if batched else ''}{PATH}"
        head = {"token": access.token, "path": path, "number": number}
        try:
            return await line.ask(head, json.dumps(body).encode())
        except ConnectionError as error:
            raise _gateway_unreachable(error) from error

    async def drop(self, access: EndpointAccess, number: int) -> None:
        """Drops an answer that no caller wants any more. Without a connection no request is
        sent.
        """
        if self._open is not None and self._open.serves(access.base_url):
            with suppress(ConnectionError):
                await self._open.drop({"token": access.token, "path": "", "number": number})

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()
        if self._client is not None:
            await self._client.close()

    async def _open_socket(self, access: EndpointAccess) -> _OpenSocket:
        """Returns the one connection, made again where it broke or the gateway has another address
        by now.
        """
        base_url = access.base_url
        if self._open is not None and self._open.serves(base_url):
            return self._open
        async with self._opening:
            if self._open is not None and self._open.serves(base_url):
                return self._open
            if self._open is not None:
                await self._open.close()
            self._open = _OpenSocket(base_url, await self._connected(access))
            return self._open

    async def _connected(self, access: EndpointAccess) -> ClientWebSocketResponse:
        try:
            from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
        except ModuleNotFoundError as error:
            message = f"a prompt needs the package `{error.name}`, which is not installed"
            raise Refused(message, hint=install_hint(EXTRA)) from error
        if self._client is None:
            # The endpoint and the template limit the time of an answer.
            timeout = ClientTimeout(total=None, sock_connect=CONNECT_S)
            jar = DummyCookieJar()
            self._client = ClientSession(
                cookie_jar=jar,
                timeout=timeout,
                trust_env=False,
            )
        try:
            return await self._client.ws_connect(
                access.base_url + CALLS,
                headers={"Authorization": f"Bearer {access.token}"},
                max_msg_size=ANSWER_BYTES_MAX,
                heartbeat=HEARTBEAT_S,
            )
        except (ClientError, OSError, TimeoutError) as error:
            raise _gateway_unreachable(error) from error


class _OpenSocket:
    """A connection, and the callers that wait for a reply by it."""

    def __init__(self, base_url: str, socket: ClientWebSocketResponse) -> None:
        self._base_url = base_url
        self._socket = socket
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[GatewayReply]] = {}
        self._reading = asyncio.create_task(self._read())

    def serves(self, base_url: str) -> bool:
        return self._base_url == base_url and not self._socket.closed and not self._reading.done()

    async def ask(self, head: Mapping[str, object], body: bytes) -> GatewayReply:
        """Sends a request to the gateway and waits for its reply. Raises ConnectionError when the
        connection breaks before that.
        """
        me = next(self._ids)
        reply: asyncio.Future[GatewayReply] = asyncio.get_running_loop().create_future()
        self._waiting[me] = reply
        try:
            await self._socket.send_bytes(json.dumps({**head, "id": me}).encode() + b"\n" + body)
            return await reply
        finally:
            del self._waiting[me]

    async def drop(self, head: Mapping[str, object]) -> None:
        await self._socket.send_bytes(json.dumps({**head, "id": 0, "drop": True}).encode() + b"\n")

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        """Reads until the connection breaks: then the waiting callers get an error."""
        from aiohttp import WSMsgType

        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    return
                head, _, body = message.data.partition(b"\n")
                reply_head = json.loads(head)
                reply = self._waiting.get(reply_head["id"])  # None: no caller waits for it any more
                if reply is not None and not reply.done():
                    again_at_s = reply_head.get("again_at_s", 0.0)
                    usd = reply_head.get("usd")
                    reply.set_result(GatewayReply(reply_head["status"], body, usd, again_at_s))
        finally:
            for reply in self._waiting.values():
                if not reply.done():
                    reply.set_exception(ConnectionResetError("the line broke"))


def _gateway_unreachable(error: Exception) -> Unavailable:
    message = f"the gateway does not answer: {type(error).__name__}"
    return Unavailable(message, reason="EndpointNotReady", retry_after_s=AWAY_S)


@dataclass(frozen=True, slots=True)
class GatewayReply:
    """A reply of the gateway. usd: the cost by the gateway; None where it is unknown."""

    status: int
    body: bytes = field(repr=False)
    usd: float | None = None
    again_at_s: float = 0.0  # when the server asks to come back, seconds since the epoch


@dataclass(frozen=True, slots=True)
class TokenUsage:
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        known = [it for it in (self.usd, other.usd) if it is not None]
        return TokenUsage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            sum(known) if known else None,
        )

    def to_json(self) -> dict[str, object]:
        found: dict[str, object] = {"tokens_in": self.tokens_in, "tokens_out": self.tokens_out}
        if self.usd is None:
            return found
        return {**found, "usd": self.usd}


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer of a model. finish: why it ended, in the server's word: `stop`, `length`."""

    text: str = field(repr=False)
    finish: str
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A failure that ends an attempt. infrastructure: whether the prompt is not to blame, and
    another attempt may go well. A prompt that its server fails at, or does not end in time, after
    all tries of the endpoint, is to blame: else it would be paid again and again, whatever
    `backoffLimitPerIndex` allows.
    """

    reason: str
    message: str
    infrastructure: bool = False


def read_reply(reply: GatewayReply) -> ModelAnswer | ModelFailure:
    """Returns the answer or failure. Raises Unavailable when no model was asked, or the server asks
    to come back later; Refused where it never can be asked.
    """
    document = _parse_document(reply.body)
    if reply.status == 200:
        return _parse_answer(document, reply)
    error = document.get("error")
    detail: Mapping[str, Any] = error if isinstance(error, dict) else {}
    message = str(detail.get("message") or f"status {reply.status}")[:TEXT_CHARS_MAX]
    ours = detail.get("type") == "fleetctl"
    match detail.get("code") if ours else None:
        case "BudgetExceeded":
            raise Unavailable(message, reason="BudgetExceeded")
        case "ServerUnreachable":
            raise Unavailable(message, reason="EndpointNotReady", retry_after_s=SERVER_RESTS_S)
        case "NoBatches":
            raise Refused(message, hint=WITHOUT_BATCHES)
        case "PriceUnknown":
            raise Unavailable(message, reason="PriceUnknown", hint=PRICE_UNKNOWN)
        case "NoAnswer":
            return ModelFailure("CallFailed", message, infrastructure=reply.status == BROKEN)
    if ours and reply.status == 401:
        raise Unavailable(message)  # the gateway has restarted and gets its tasks in a moment
    if not ours and reply.status in (429, 503):
        raise _retry_later(message, reply.again_at_s)
    if reply.status == 408 or reply.status >= 500:
        away = reply.status == BROKEN
        return ModelFailure("CallFailed", f"the endpoint answers {message}", infrastructure=away)
    way_out = MAX_TOKENS_WAY_OUT if "max_completion_tokens" in message else ""
    return ModelFailure(CALL_REFUSED, f"the endpoint answers {message}{way_out}")


def _retry_later(message: str, again_at_s: float) -> Unavailable:
    wait_s = again_at_s - time.time()
    if wait_s <= SERVER_RESTS_S:
        return Unavailable(f"the server answers {message}", retry_after_s=SERVER_RESTS_S)
    asks = f"it asks to wait {format_duration(wait_s)}, until {format_timestamp(again_at_s)}"
    # Looked at in between: a new key, or a raised quota, ends a wait of a day.
    pause_s = min(wait_s, SERVER_PAUSE_MAX_S)
    return Unavailable(f"the server answers {message}; {asks}", retry_after_s=pause_s)


def _parse_answer(document: Mapping[str, Any], reply: GatewayReply) -> ModelAnswer | ModelFailure:
    try:
        choice = document["choices"][0]
        text = choice["message"]["content"]
        finish = str(choice.get("finish_reason") or "")
    except (KeyError, IndexError, TypeError, AttributeError):
        return ModelFailure("AnswerInvalid", "the server's reply is not a chat completion")
    if finish == "content_filter" and not text:
        return ModelFailure(ANSWER_FILTERED, "a content filter took the model's answer away")
    if not isinstance(text, str):
        return ModelFailure("AnswerInvalid", "the model's answer has no text")
    usage = document.get("usage")
    counts: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    spent = TokenUsage(
        _token_count(counts, "prompt_tokens"), _token_count(counts, "completion_tokens"), reply.usd
    )
    return ModelAnswer(text, finish, spent)


def _token_count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    if isinstance(value, int) and value >= 0:
        return value
    return 0


def _parse_document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, dict):
        return found
    return {}


async def check_endpoint(home: Path, account: Account) -> Sequence[CheckResult]:
    """Returns no check where the packages are missing: users without prompts do not need them."""
    del home
    lacking = [name for name in ("aiohttp", "jsonschema") if find_spec(name) is None]
    if lacking:
        return []
    return [CheckResult(account.name, "packages", True, "prompts can be asked")]


def find_obstacles(template: Template) -> Iterator[Finding]:
    prompt = template.prompt
    if prompt is None:
        return
    if find_spec("aiohttp") is None:
        message = "a prompt needs the package `aiohttp`, which is not installed"
        yield Finding(("prompt",), message, install_hint(EXTRA))
    if prompt.answer is not None and find_spec("jsonschema") is None:
        message = "a schema needs the package `jsonschema`, which is not installed"
        yield Finding(("prompt", "schema"), message, install_hint(EXTRA))
