"""Failed calls: replies with status 200 that are not an answer, the decision to try again, and the
refusal that a task receives instead. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

ATTEMPTS = 4
ON: tuple[int | str, ...] = (408, 429, "5xx", "connection")
INITIAL_S = 0.5
MAX_S = 30.0
RETRY_AFTER_MAX_S = 30.0  # a longer wait is the caller's own decision, with its own message
# The server, or a proxy before it, gave up waiting: the request may have been answered.
UNHEARD = (408, 504, 524)

COMPLETIONS = ("/v1/chat/completions", "/v1/completions")
WORDS_MAX = 500
# Retried like an error that the server reported, or like a fault of the server.
OF_THE_SERVER = 500
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)

NOT_GRANTED = "NotGranted"  # the token is of no task that runs
ENDPOINT_UNKNOWN = "EndpointUnknown"
LIMIT_REACHED = "LimitReached"  # of calls or tokens of a task
BUDGET_EXCEEDED = "BudgetExceeded"
PRICE_UNKNOWN = "PriceUnknown"  # a budget cannot be held with it
MODEL_NOT_FOUND = "ModelNotFound"  # the endpoint declares others
SERVER_UNREACHABLE = "ServerUnreachable"  # no request was sent, no cost arose
NO_ANSWER = "NoAnswer"  # sent, but the request timed out or broke off
NO_BATCHES = "NoBatches"  # no server of the endpoint has a batch API
BATCH_REFUSED = "BatchRefused"  # the server did not accept it: no request was sent
NOT_SERVED = "NotServed"  # this method, path, or host
NOT_RECORDED = "NotRecorded"  # the disk is full: a call that cannot be accounted for is not sent
BAD_REQUEST = "BadRequest"


@dataclass(frozen=True, slots=True)
class RetryRule:
    attempts: int = ATTEMPTS
    on: Sequence[int | str] = ON
    initial_s: float = INITIAL_S
    max_s: float = MAX_S


def read_retry(spec: Mapping[str, Any]) -> RetryRule:
    retry = spec.get("retry") or {}
    backoff = retry.get("backoff") or {}
    return RetryRule(
        retry.get("attempts", ATTEMPTS),
        retry.get("when") or retry.get("on") or ON,
        float(backoff.get("initialSeconds", INITIAL_S)),
        float(backoff.get("maxSeconds", MAX_S)),
    )


def wait_s(
    retry: RetryRule,
    *,
    tried: int,
    status: int | None,
    retry_after_s: float,
) -> float | None:
    """Returns the seconds before the next try, or None if it is not repeated; `status` None is a
    failed connection.
    """
    words = {str(word) for word in retry.on}
    names = {"connection"} if status is None else {str(status), f"{status // 100}xx"}
    if tried >= retry.attempts or not words & names or retry_after_s > RETRY_AFTER_MAX_S:
        return None
    backoff: float = min(retry.max_s, retry.initial_s * 2.0 ** (tried - 1))
    return max(backoff, retry_after_s)


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float:
    """Returns the wait that a server requests, in seconds; the header may hold seconds,
    milliseconds or a date. 0.0 for an unreadable header.

    headers: by names in lower case. now_s: seconds since the epoch.
    """
    millis = headers.get("retry-after-ms", "")
    text = headers.get("retry-after", "").strip()
    for number, unit_s in ((millis, 0.001), (text, 1.0)):
        try:
            return max(0.0, float(number) * unit_s)
        except ValueError:
            continue
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class BadAnswer:
    """The fault of a reply. status: the status it is treated as. message: the server's own words,
    if it has any. page: made for browsers, so that no model wrote it.
    """

    status: int
    message: str
    page: bool = False

    @property
    def body(self) -> bytes:
        return json.dumps({"error": {"message": self.message, "code": self.status}}).encode()


def parse_answer(answer: bytes) -> Any:
    """Returns the JSON document, or None if the answer is not JSON."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None


def bad_answer(
    path: str,
    answer: bytes,
    reply: Any,
) -> BadAnswer | None:
    """Returns the fault of a reply, or None for a good answer.

    reply: the document that `parse` made of the answer.
    """
    if not isinstance(reply, dict):
        text = answer[:4096].decode(errors="replace").strip()
        return BadAnswer(OF_THE_SERVER, _describe_unread(text), text.startswith("<"))
    if found := bad_piece(reply):
        return found
    if path in COMPLETIONS and not reply.get("choices"):
        return BadAnswer(OF_THE_SERVER, "the server answered without any choice")
    return None


def bad_piece(reply: Mapping[str, Any]) -> BadAnswer | None:
    """Returns the error in a whole answer or in the first piece of a stream; None without one."""
    error = reply.get("error")
    if not error or reply.get("choices"):
        return None
    detail = error if isinstance(error, dict) else {"message": error}
    code = detail.get("code", reply.get("code"))
    message = str(detail.get("message") or "an error without a message")[:WORDS_MAX]
    if not isinstance(code, int) or not 400 <= code <= 599:
        code = OF_THE_SERVER
    return BadAnswer(code, message)


def _describe_unread(text: str) -> str:
    if text.startswith("<"):
        title = _TITLE.search(text)
        named = f" `{' '.join(title.group(1).split())[:100]}`" if title else ""
        return f"the server answered with a page{named}, not with JSON"
    if text:
        return "the server's answer is not whole JSON"
    return "the server's answer is empty"


class GatewayRefusal(Exception):
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
