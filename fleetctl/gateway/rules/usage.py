"""Tokens and dollars of a request: the worst case before it, the usage after it, and the limits on
what a run may still send. Pure.

A count that the server reports is used as it is. Without such a count, or if the answer was lost,
the estimates here are never below what a server can have counted: no token is shorter than a
byte. Limits are checked before a call, for all n of a list of n prompts.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Where a request names no limit of its answer; a guess, on the high side of ordinary answers.
MAX_TOKENS = 4096
# More than any server writes in one answer; bounds the tokens written since the last byte came.
TOKENS_PER_S_MAX = 3000.0
# An image counts by its size in pixels, not by its bytes; above what models of today count for one
# image.
IMAGE_TOKENS = 16_384
EMBEDDING_PATHS = ("/v1/embeddings", "/api/embed", "/api/embeddings")
# Below it, looking for images costs more than they could be wrong by.
_SMALL_BYTES = 2 * IMAGE_TOKENS
# Where a prompt's tokens are counted so, those of the server's own cache are counted apart.
_INWARD = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# Texts of an answer that no model wrote.
_FRAME = ("role", "id", "type", "object", "model", "finish_reason", "refusal_reason", "created_at")

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Token counts of a request. estimated: not counted by a server, but estimated on the high
    side.
    """

    inward: int = 0
    outward: int = 0
    estimated: bool = False


NOTHING = TokenCount()


def calls_of(body: Mapping[str, Any]) -> int:
    """Returns the number of calls in a body: n for a list of n prompts or texts."""
    batch = body.get("input", body.get("prompt"))
    # A list of numbers is one text in tokens, and one of objects a conversation.
    if isinstance(batch, list) and batch and not isinstance(batch[0], int | dict):
        return len(batch)
    return 1


def worst_case(
    path: str,
    body: Mapping[str, Any],
    length_bytes: int,
) -> TokenCount:
    """Bounds the tokens of a request: the body's length bounds the prompt's tokens, except for
    images, which count as images do.
    """
    inward = length_bytes
    if length_bytes > _SMALL_BYTES or "image_url" in str(body.get("messages", ""))[:_SMALL_BYTES]:
        images, image_bytes = _count_images(body)
        inward = length_bytes - image_bytes + images * IMAGE_TOKENS
    if path in EMBEDDING_PATHS:
        return TokenCount(inward, 0, estimated=True)
    limit = read_token_limit(body)
    outward = MAX_TOKENS * _count_answers(body) if limit is None else limit
    return TokenCount(inward, outward, estimated=True)


def read_token_limit(body: Mapping[str, Any]) -> int | None:
    """Returns the token limit that the request itself sets for its answer, or None if it sets no
    limit.
    """
    options = body.get("options")
    asked = (
        body.get("max_completion_tokens")
        or body.get("max_tokens")
        or body.get("max_output_tokens")
        or (options.get("num_predict") if isinstance(options, dict) else None)
    )
    if isinstance(asked, int) and asked > 0:
        return asked * _count_answers(body)
    return None


def _count_answers(body: Mapping[str, Any]) -> int:
    most = max((n for n in (body.get("n"), body.get("best_of")) if isinstance(n, int)), default=1)
    return max(1, most) * calls_of(body)


def _count_images(value: Any) -> tuple[int, int]:
    """Returns the number of images, and how many bytes of the body they are."""
    if isinstance(value, Mapping):
        found = [
            _count_images(it) for name, it in value.items() if name not in ("images", "image_url")
        ]
        for name in ("images", "image_url"):
            if name in value:
                held = value[name] if isinstance(value[name], list) else [value[name]]
                found += [(1, len(json.dumps(it))) for it in held]
    elif isinstance(value, list):
        found = [_count_images(it) for it in value]
    else:
        return 0, 0
    return sum(it[0] for it in found), sum(it[1] for it in found)


# -- after it --------------------------------------------------------------------------------------
def usage_of(reply: Any) -> TokenCount | None:
    """Returns the usage that a server reports in an answer or in a piece of an answer, in any
    protocol.
    """
    if not isinstance(reply, dict):
        return None
    usage = reply.get("usage")
    for name in ("response", "message"):  # events of `/v1/responses` and `/v1/messages`
        if not isinstance(usage, dict) and isinstance(reply.get(name), dict):
            usage = reply[name].get("usage")
    if isinstance(usage, dict):
        inward = _read_count(usage, "prompt_tokens") or sum(
            _read_count(usage, name) for name in _INWARD
        )
        outward = _read_count(usage, "completion_tokens") + _read_count(usage, "output_tokens")
        # Some count the tokens of thinking apart, and bill them.
        total = max(_read_count(usage, "total_tokens") - inward, outward)
        if inward or total:
            return TokenCount(inward, total)
        return None
    if "prompt_eval_count" in reply or "eval_count" in reply:
        return TokenCount(_read_count(reply, "prompt_eval_count"), _read_count(reply, "eval_count"))
    return None


def _read_count(holder: Mapping[str, Any], name: str) -> int:
    value = holder.get(name)
    if isinstance(value, int) and value >= 0:
        return value
    return 0


def count_used(
    body: Mapping[str, Any],
    answer: bytes,
    worst: TokenCount,
) -> TokenCount:
    """Counts the tokens of a whole answer. Without a count of the server's, the text of the answer
    is the output.
    """
    try:
        reply = json.loads(answer)
    except ValueError:
        return count_written(body, len(answer), worst)
    return used_by(reply, body, worst)


def used_by(
    reply: Any,
    body: Mapping[str, Any],
    worst: TokenCount,
) -> TokenCount:
    """Returns the tokens used by a parsed answer."""
    return usage_of(reply) or count_written(body, count_written_bytes(reply), worst)


def count_written(
    body: Mapping[str, Any],
    came: int,
    worst: TokenCount,
) -> TokenCount:
    """Estimates the tokens of an answer without a count; came: bytes of its text, or its pieces if
    they are more.
    """
    limit = read_token_limit(body)
    if not worst.outward:
        came = 0  # an embedding
    return TokenCount(worst.inward, came if limit is None else min(came, limit), estimated=True)


def count_written_bytes(reply: Any) -> int:
    """Returns the bytes of text that a model wrote, in an answer or a piece of it."""
    if isinstance(reply, str):
        return len(reply.encode(errors="surrogatepass"))  # half a character counts as well
    if isinstance(reply, list):
        return sum(map(count_written_bytes, reply))
    if isinstance(reply, dict):
        return sum(count_written_bytes(it) for name, it in reply.items() if name not in _FRAME)
    return 0


def count_lost(
    body: Mapping[str, Any],
    came: int,
    worst: TokenCount,
    *,
    quiet_s: float,
) -> TokenCount:
    """Estimates the tokens of an answer whose end was lost: the part that came, and what a server
    can have written since. A server ends an answer that no client reads any more.
    """
    since = math.ceil(quiet_s * TOKENS_PER_S_MAX) * _count_answers(body)
    return count_written(body, max(came, min(worst.outward, came + since)), worst)


def price_usd(
    spec: Mapping[str, Any],
    model: str,
    tokens: TokenCount,
) -> float | None:
    """Returns the price in USD, or None if the endpoint has no price for the model: unpriced is
    never 0.
    """
    price = (spec.get("prices") or {}).get(model)
    if price is None:
        return None
    inward = tokens.inward * float(price.get("inputPerMillion") or 0)
    return (inward + tokens.outward * float(price.get("outputPerMillion") or 0)) / 1e6


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    calls_per_task: int | None = None
    tokens_per_task: int | None = None
    per_task_concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def per_minute(self) -> bool:
        return self.requests_per_minute is not None or self.tokens_per_minute is not None


def read_limits(spec: Mapping[str, Any]) -> EndpointLimits:
    limits = spec.get("limits") or {}
    return EndpointLimits(
        limits.get("callsPerTask"),
        limits.get("tokensPerTask"),
        limits.get("perTaskConcurrency"),
        limits.get("requestsPerMinute"),
        limits.get("tokensPerMinute"),
    )


def describe_task_excess(
    limits: EndpointLimits,
    *,
    calls: int,
    tokens: int,
    asked: int,
) -> str:
    """Returns a sentence with used, requested and allowed; empty when the call may go on."""
    if limits.calls_per_task is not None and calls + asked > limits.calls_per_task:
        return f"callsPerTask: {calls} used, {asked} asked, {limits.calls_per_task} allowed"
    if limits.tokens_per_task is not None and tokens >= limits.tokens_per_task:
        return f"tokensPerTask: {tokens} used, {limits.tokens_per_task} allowed"
    return ""


class UsageRate:
    """The tries at an endpoint that ended in the last minute, as sums by second: any number of
    calls takes the same room."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int, int, float]] = deque(maxlen=int(WINDOW_S) + 1)

    def add(self, now_s: float, *, tokens: int, usd: float) -> None:
        second, requests = int(now_s), 1
        if self._seconds and self._seconds[-1][0] == second:
            _, others, more, paid = self._seconds.pop()
            requests, tokens, usd = requests + others, tokens + more, usd + paid
        self._seconds.append((second, requests, tokens, usd))

    def read(self, now_s: float) -> dict[str, float]:
        """Returns `requests`, `tokens` and `usd` of the last minute."""
        recent = [it for it in self._seconds if it[0] > now_s - WINDOW_S]
        return {
            "requests": sum(it[1] for it in recent),
            "tokens": sum(it[2] for it in recent),
            "usd": round(sum(it[3] for it in recent), 6),
        }


@dataclass(slots=True)
class MinuteUsage:
    """The requests and tokens that one endpoint received in the last minute. The sums are stored: a
    thousand calls a second must not add up sixty thousand at each.
    """

    entries: deque[tuple[float, int, int]] = field(default_factory=deque)
    requests: int = 0
    tokens: int = 0

    def add(
        self,
        now_s: float,
        *,
        requests: int,
        tokens: int,
    ) -> None:
        self._forget(now_s)
        self.entries.append((now_s, requests, tokens))
        self.requests += requests
        self.tokens += tokens

    def wait_s(self, limits: EndpointLimits, now_s: float) -> float:
        """Seconds until the next request may go; 0.0 means at once."""
        self._forget(now_s)
        most = limits.requests_per_minute
        longest = limits.tokens_per_minute
        too_many = most is not None and self.requests >= most
        too_long = longest is not None and self.tokens >= longest
        if not self.entries or not (too_many or too_long):
            return 0.0
        return self.entries[0][0] + WINDOW_S - now_s

    def _forget(self, now_s: float) -> None:
        while self.entries and self.entries[0][0] <= now_s - WINDOW_S:
            _, requests, tokens = self.entries.popleft()
            self.requests -= requests
            self.tokens -= tokens
