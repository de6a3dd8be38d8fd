"""What a reply of the gateway means for a row. Asks nobody.

A reply is an answer, a failure that ends the attempt, or the news that nothing was asked, which is
raised as Unavailable: the row waits and no attempt is consumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.text import duration, timestamp
from fleetctl.controllers.history.retries.retry import ANSWER_FILTERED

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
class Reply:
    """usd: what the gateway says that it cost; None where it does not say."""

    status: int
    body: bytes = field(repr=False)
    usd: float | None = None
    again_at_s: float = 0.0  # when the server asks to come back, seconds since the epoch


@dataclass(frozen=True, slots=True)
class Usage:
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        known = [it for it in (self.usd, other.usd) if it is not None]
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            sum(known) if known else None,
        )

    def told(self) -> dict[str, object]:
        found: dict[str, object] = {"tokens_in": self.tokens_in, "tokens_out": self.tokens_out}
        return found if self.usd is None else {**found, "usd": self.usd}


@dataclass(frozen=True, slots=True)
class Answer:
    """finish: why it ended, in the server's word: `stop`, `length`."""

    text: str = field(repr=False)
    finish: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """infrastructure: nobody's prompt is to blame, and another attempt may go well. A prompt that
    its server fails at, or does not end in time, after all tries of the endpoint, is to blame: else
    it would be paid again and again, whatever `backoffLimitPerIndex` says.
    """

    reason: str
    message: str
    infrastructure: bool = False


def read(reply: Reply) -> Answer | Failure:
    """Raises Unavailable when nothing was asked, or the server asks to come back later; Refused
    where it never can be.
    """
    document = _document(reply.body)
    if reply.status == 200:
        return _answer(document, reply)
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
            return Failure("CallFailed", message, infrastructure=reply.status == BROKEN)
    if ours and reply.status == 401:
        raise Unavailable(message)  # the gateway began anew and is told of its tasks in a moment
    if not ours and reply.status in (429, 503):
        raise _later(message, reply.again_at_s)
    if reply.status == 408 or reply.status >= 500:
        away = reply.status == BROKEN
        return Failure("CallFailed", f"the endpoint answers {message}", infrastructure=away)
    way_out = MAX_TOKENS_WAY_OUT if "max_completion_tokens" in message else ""
    return Failure(CALL_REFUSED, f"the endpoint answers {message}{way_out}")


def _later(message: str, again_at_s: float) -> Unavailable:
    wait_s = again_at_s - time.time()
    if wait_s <= SERVER_RESTS_S:
        return Unavailable(f"the server answers {message}", retry_after_s=SERVER_RESTS_S)
    asks = f"it asks to wait {duration(wait_s)}, until {timestamp(again_at_s)}"
    # Looked at in between: a new key, or a raised quota, ends a wait of a day.
    pause_s = min(wait_s, SERVER_PAUSE_MAX_S)
    return Unavailable(f"the server answers {message}; {asks}", retry_after_s=pause_s)


def _answer(document: Mapping[str, Any], reply: Reply) -> Answer | Failure:
    try:
        choice = document["choices"][0]
        text, finish = choice["message"]["content"], str(choice.get("finish_reason") or "")
    except (KeyError, IndexError, TypeError, AttributeError):
        return Failure("AnswerInvalid", "the server's reply is not a chat completion")
    if finish == "content_filter" and not text:
        return Failure(ANSWER_FILTERED, "a content filter took the model's answer away")
    if not isinstance(text, str):
        return Failure("AnswerInvalid", "the model's answer has no text")
    usage = document.get("usage")
    counts: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    spent = Usage(_count(counts, "prompt_tokens"), _count(counts, "completion_tokens"), reply.usd)
    return Answer(text, finish, spent)


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
