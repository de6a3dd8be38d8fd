"""Decides if a try whose answer had not begun is repeated, and when; pure."""

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
