"""Tokens and dollars of a request: the worst case before it, what `usage` says after; pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Where a request names no limit of its answer; a guess, on the high side of ordinary answers.
MAX_TOKENS = 4096
EMBEDDING_PATHS = ("/v1/embeddings", "/api/embed", "/api/embeddings")


@dataclass(frozen=True, slots=True)
class Tokens:
    inward: int = 0
    outward: int = 0


def calls_of(body: Mapping[str, Any]) -> int:
    """n for a batch of n: a list of prompts or of texts is so many calls."""
    batch = body.get("input", body.get("prompt"))
    # A list of numbers is one text in tokens.
    if isinstance(batch, list) and batch and not isinstance(batch[0], int):
        return len(batch)
    return 1


def worst_case(path: str, body: Mapping[str, Any], length_bytes: int) -> Tokens:
    """No token is shorter than a byte, so the body's length bounds the prompt's tokens."""
    if path in EMBEDDING_PATHS:
        return Tokens(length_bytes, 0)
    options = body.get("options")
    asked = (
        body.get("max_completion_tokens")
        or body.get("max_tokens")
        or (options.get("num_predict") if isinstance(options, dict) else None)
    )
    limit = asked if isinstance(asked, int) and asked > 0 else MAX_TOKENS
    choices = body.get("n")
    each = choices if isinstance(choices, int) and choices > 0 else 1
    return Tokens(length_bytes, limit * each * calls_of(body))


def used(text: bytes) -> Tokens | None:
    """What an answer, or the end of a stream of either protocol, says of its usage."""
    for line in reversed(text.strip().splitlines() or [b""]):
        try:
            reply = json.loads(line.strip().removeprefix(b"data:"))
        except ValueError:
            continue
        found = _usage(reply)
        if found is not None:
            return found
    try:
        return _usage(json.loads(text))
    except ValueError:
        return None


def _usage(reply: Any) -> Tokens | None:
    if not isinstance(reply, dict):
        return None
    usage = reply.get("usage")
    if isinstance(usage, dict):
        return Tokens(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
    if "prompt_eval_count" in reply or "eval_count" in reply:
        return Tokens(_count(reply, "prompt_eval_count"), _count(reply, "eval_count"))
    return None


def _count(holder: Mapping[str, Any], name: str) -> int:
    value = holder.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def price_usd(spec: Mapping[str, Any], model: str, tokens: Tokens) -> float | None:
    """None where the endpoint has no price for the model: unpriced is never 0."""
    price = (spec.get("prices") or {}).get(model)
    if price is None:
        return None
    inward = tokens.inward * float(price.get("inputPerMillion") or 0)
    return (inward + tokens.outward * float(price.get("outputPerMillion") or 0)) / 1e6
