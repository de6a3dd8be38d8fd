"""Tokens and dollars of a call of a language model: its worst case, and what it used.

Used by fleetctl_llm_rlm.py in tasks, and by fleetctl/interpreter/asking on the host; pure.
"""

from __future__ import annotations

from typing import Any, Mapping

ANSWER_TOKENS = 4096  # where a call names no limit of its answer, as the gateway reckons


def worst_tokens(prompt_bytes: int, parameters: Mapping[str, Any]) -> tuple[int, int]:
    """(in, out). No token is shorter than a byte. parameters: of the request, or the model's."""
    limit = parameters.get("max_completion_tokens") or parameters.get("max_tokens")
    answers = parameters.get("n")
    answer = limit if isinstance(limit, int) and limit > 0 else ANSWER_TOKENS
    return prompt_bytes, answer * (answers if isinstance(answers, int) and answers > 1 else 1)


def usd_of(price: Mapping[str, Any] | None, tokens: tuple[int, int]) -> float | None:
    """price: {"inputPerMillion", "outputPerMillion"} in USD; None is unknown, which is not 0."""
    if price is None:
        return None
    inward = tokens[0] * float(price.get("inputPerMillion") or 0)
    return (inward + tokens[1] * float(price.get("outputPerMillion") or 0)) / 1e6


def usage_of(usage: Any) -> tuple[int, int] | None:
    """(tokens in, tokens out) as an answer's `usage` says; None where it says nothing."""
    if not isinstance(usage, Mapping):
        return None
    inward, outward, total = (
        usage.get(name) if isinstance(usage.get(name), int) else 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    # Some count what was thought apart, and bill it.
    outward = max(outward or 0, (total or 0) - (inward or 0))
    return (inward or 0, outward) if inward or outward else None


def tokens_of(header: str | None, usage: Any) -> tuple[int, int] | None:
    """header: our gateway's, which counts all tries and knows an answer of its cache; else None."""
    if header:
        inward, outward = header.split()
        return int(inward), int(outward)
    return usage_of(usage)
