"""Limits on the requests that a run may still send to an endpoint; pure. Checked before a call, for
all n of a batch.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW_S = 60.0


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


def over_task_limit(
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
