"""Whether a try whose answer had not begun is repeated, and when; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ATTEMPTS = 4
ON: tuple[int | str, ...] = (408, 429, "5xx", "connection")
RETRY_AFTER_MAX_S = 120.0


@dataclass(frozen=True, slots=True)
class Retry:
    attempts: int = ATTEMPTS
    on: Sequence[int | str] = ON
    initial_s: float = 0.5
    max_s: float = 30.0


def read_retry(spec: Mapping[str, Any]) -> Retry:
    retry = spec.get("retry") or {}
    backoff = retry.get("backoff") or {}
    return Retry(
        retry.get("attempts") or ATTEMPTS,
        retry.get("on") or ON,
        backoff.get("initialSeconds") or 0.5,
        backoff.get("maxSeconds") or 30.0,
    )


def wait_s(retry: Retry, *, tried: int, status: int | None, retry_after_s: float) -> float | None:
    """Seconds before the next try, None for no more; `status` None is a failed connection."""
    words = {str(word) for word in retry.on}
    names = {"connection"} if status is None else {str(status), f"{status // 100}xx"}
    if tried >= retry.attempts or not words & names:
        return None
    backoff: float = min(retry.max_s, retry.initial_s * 2.0 ** (tried - 1))
    return max(backoff, min(retry_after_s, RETRY_AFTER_MAX_S))
