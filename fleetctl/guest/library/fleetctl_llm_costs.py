"""Tokens and dollars of a call of a language model: its worst case, and what it used.

Used by fleetctl_llm_rlm.py in tasks, and by fleetctl/interpreter/asking on the host; pure.
"""

from __future__ import annotations

from typing import Any, Mapping

ANSWER_TOKENS = 4096  # of a call without a limit, as the gateway assumes


def worst_tokens(prompt_bytes: int, parameters: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the most tokens (in, out); none is shorter than a byte. parameters: the request's."""
    limit = parameters.get("max_completion_tokens") or parameters.get("max_tokens")
    answers = parameters.get("n")
    answer = limit if isinstance(limit, int) and limit > 0 else ANSWER_TOKENS
    return prompt_bytes, answer * (answers if isinstance(answers, int) and answers > 1 else 1)


def usd_of(price: Mapping[str, Any] | None, tokens: tuple[int, int]) -> float | None:
    """Returns USD; None when unknown, which is not 0. price: {"inputPerMillion",
    "outputPerMillion"} in USD, or None.
    """
    if price is None:
        return None
    inward = tokens[0] * float(price.get("inputPerMillion") or 0)
    return (inward + tokens[1] * float(price.get("outputPerMillion") or 0)) / 1e6


def usage_of(usage: Any) -> tuple[int, int] | None:
    """Returns (tokens in, tokens out) of an answer's `usage`; None where it has none."""
    if not isinstance(usage, Mapping):
        return None
    inward, outward, total = (
        usage.get(name) if isinstance(usage.get(name), int) else 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    # Some servers count reasoning apart, and bill it.
    outward = max(outward or 0, (total or 0) - (inward or 0))
    if inward or outward:
        return (inward or 0, outward)
    return None


def tokens_of(header: str | None, usage: Any) -> tuple[int, int] | None:
    """Returns (in, out) of a call. header: our gateway's, which counts all tries and knows cached
    answers; else None.
    """
    if header:
        inward, outward = header.split()
        return int(inward), int(outward)
    return usage_of(usage)
