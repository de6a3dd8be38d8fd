"""Tokens and dollars of a request: the worst case before it, what was used after it; pure.

Where a server says what it counted, that is taken. Where it does not, or its answer was lost, the
estimates here are never below what a server can have counted: no token is shorter than a byte.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Where a request names no limit of its answer; a guess, on the high side of ordinary answers.
MAX_TOKENS = 4096
# More than any server writes of one answer; what it may have written since it was heard last.
TOKENS_PER_S_MAX = 3000.0
# An image counts by its size in pixels, not by its bytes; more than models of today take of one.
IMAGE_TOKENS = 16_384
EMBEDDING_PATHS = ("/v1/embeddings", "/api/embed", "/api/embeddings")
# Below it, looking for images costs more than they could be wrong by.
_SMALL_BYTES = 2 * IMAGE_TOKENS
# Texts of an answer that no model wrote.
_FRAME = ("role", "id", "type", "object", "model", "finish_reason", "refusal_reason", "created_at")


@dataclass(frozen=True, slots=True)
class Tokens:
    """estimated: nobody counted them; on the high side."""

    inward: int = 0
    outward: int = 0
    estimated: bool = False


NOTHING = Tokens()


def calls_of(body: Mapping[str, Any]) -> int:
    """n for a batch of n: a list of prompts or of texts is so many calls."""
    batch = body.get("input", body.get("prompt"))
    # A list of numbers is one text in tokens.
    if isinstance(batch, list) and batch and not isinstance(batch[0], int):
        return len(batch)
    return 1


def worst_case(path: str, body: Mapping[str, Any], length_bytes: int) -> Tokens:
    """The body's length bounds the prompt's tokens, but for images, which count as images do."""
    inward = length_bytes
    if length_bytes > _SMALL_BYTES or "image_url" in str(body.get("messages", ""))[:_SMALL_BYTES]:
        images, image_bytes = _images(body)
        inward = length_bytes - image_bytes + images * IMAGE_TOKENS
    if path in EMBEDDING_PATHS:
        return Tokens(inward, 0, estimated=True)
    limit = most_tokens(body)
    outward = MAX_TOKENS * _answers(body) if limit is None else limit
    return Tokens(inward, outward, estimated=True)


def most_tokens(body: Mapping[str, Any]) -> int | None:
    """What the request itself allows its answer; None where it says nothing."""
    options = body.get("options")
    asked = (
        body.get("max_completion_tokens")
        or body.get("max_tokens")
        or (options.get("num_predict") if isinstance(options, dict) else None)
    )
    return asked * _answers(body) if isinstance(asked, int) and asked > 0 else None


def _answers(body: Mapping[str, Any]) -> int:
    most = max((n for n in (body.get("n"), body.get("best_of")) if isinstance(n, int)), default=1)
    return max(1, most) * calls_of(body)


def _images(value: Any) -> tuple[int, int]:
    """How many, and how many bytes of the body they are."""
    if isinstance(value, Mapping):
        found = [_images(it) for name, it in value.items() if name not in ("images", "image_url")]
        for name in ("images", "image_url"):
            if name in value:
                held = value[name] if isinstance(value[name], list) else [value[name]]
                found += [(1, len(json.dumps(it))) for it in held]
    elif isinstance(value, list):
        found = [_images(it) for it in value]
    else:
        return 0, 0
    return sum(it[0] for it in found), sum(it[1] for it in found)


# -- after it --------------------------------------------------------------------------------------


def usage_of(reply: Any) -> Tokens | None:
    """What a server says of an answer, or of a piece of one, in either protocol."""
    if not isinstance(reply, dict):
        return None
    usage = reply.get("usage")
    if isinstance(usage, dict):
        inward, outward = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        # Some count what was thought apart, and bill it.
        total = max(_count(usage, "total_tokens") - inward, outward)
        return Tokens(inward, total) if inward or total else None
    if "prompt_eval_count" in reply or "eval_count" in reply:
        return Tokens(_count(reply, "prompt_eval_count"), _count(reply, "eval_count"))
    return None


def _count(holder: Mapping[str, Any], name: str) -> int:
    value = holder.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def used(body: Mapping[str, Any], answer: bytes, worst: Tokens) -> Tokens:
    """Of a whole answer. Without a count of the server's, its text is what was written."""
    try:
        reply = json.loads(answer)
    except ValueError:
        return written(body, len(answer), worst)
    return usage_of(reply) or written(body, written_bytes(reply), worst)


def written(body: Mapping[str, Any], came: int, worst: Tokens) -> Tokens:
    """Of an answer that nobody counted; came: bytes of its text, or its pieces if they are more."""
    limit = most_tokens(body)
    if not worst.outward:
        came = 0  # an embedding
    return Tokens(worst.inward, came if limit is None else min(came, limit), estimated=True)


def written_bytes(reply: Any) -> int:
    """Bytes of text that a model wrote, in an answer or a piece of one."""
    if isinstance(reply, str):
        return len(reply.encode(errors="surrogatepass"))  # half a character counts as well
    if isinstance(reply, list):
        return sum(map(written_bytes, reply))
    if isinstance(reply, dict):
        return sum(written_bytes(it) for name, it in reply.items() if name not in _FRAME)
    return 0


def lost(body: Mapping[str, Any], came: int, worst: Tokens, *, quiet_s: float) -> Tokens:
    """Of an answer that was not heard to its end: what came of it, and what a server can have
    written since. A server ends an answer that nobody hears any more.
    """
    since = math.ceil(quiet_s * TOKENS_PER_S_MAX) * _answers(body)
    return written(body, max(came, min(worst.outward, came + since)), worst)


def price_usd(spec: Mapping[str, Any], model: str, tokens: Tokens) -> float | None:
    """None where the endpoint has no price for the model: unpriced is never 0."""
    price = (spec.get("prices") or {}).get(model)
    if price is None:
        return None
    inward = tokens.inward * float(price.get("inputPerMillion") or 0)
    return (inward + tokens.outward * float(price.get("outputPerMillion") or 0)) / 1e6
