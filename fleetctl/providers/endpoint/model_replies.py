"""Reads the meaning of a gateway's reply for a row. Makes no call.

A reply is an answer, a failure that ends the attempt, or the report that no model was called. The
last is raised as Unavailable: the row waits, and no attempt is consumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.text import format_duration, format_timestamp
from fleetctl.controllers.history.retries.retry_limits import ANSWER_FILTERED

TEXT_CHARS_MAX = 500  # of a server's own words in a message
SERVER_RESTS_S = 2.0
SERVER_PAUSE_MAX_S = 600.0
CALL_REFUSED = "CallRefused"
MAX_TOKENS_WAY_OUT = (
    "; give `parameters: {extra: {max_completion_tokens: N}}` in place of `maxTokens`"
)
BROKEN = 502  # of the gateway, or of a proxy before the server: the server went away
PRICE_UNKNOWN = "give the model in `prices` of the endpoint; `{}` is a price of 0"
WITHOUT_BATCHES = "leave `mode: batch` out, or name an endpoint whose server has a batch API"


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
