"""What a run may still ask of an endpoint; pure. Checked before a call, for all n of a batch."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    calls_per_task: int | None = None
    tokens_per_task: int | None = None
    per_task_concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


def read_limits(spec: Mapping[str, Any]) -> Limits:
    limits = spec.get("limits") or {}
    return Limits(
        limits.get("callsPerTask"),
        limits.get("tokensPerTask"),
        limits.get("perTaskConcurrency"),
        limits.get("requestsPerMinute"),
        limits.get("tokensPerMinute"),
    )


def over_task_limit(limits: Limits, *, calls: int, tokens: int, asked: int) -> str:
    """The sentence that says used, asked and allowed; empty when the call may go on."""
    if limits.calls_per_task is not None and calls + asked > limits.calls_per_task:
        return f"callsPerTask: {calls} used, {asked} asked, {limits.calls_per_task} allowed"
    if limits.tokens_per_task is not None and tokens >= limits.tokens_per_task:
        return f"tokensPerTask: {tokens} used, {limits.tokens_per_task} allowed"
    return ""


@dataclass(slots=True)
class Minute:
    """What was asked in the last minute of one endpoint."""

    entries: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, now_s: float, *, requests: int, tokens: int) -> None:
        self.entries.append((now_s, requests, tokens))

    def wait_s(self, limits: Limits, now_s: float) -> float:
        """Seconds until the next request may go; 0.0 means at once."""
        while self.entries and self.entries[0][0] <= now_s - WINDOW_S:
            self.entries.popleft()
        requests = sum(entry[1] for entry in self.entries)
        tokens = sum(entry[2] for entry in self.entries)
        too_many = limits.requests_per_minute is not None and requests >= limits.requests_per_minute
        too_long = limits.tokens_per_minute is not None and tokens >= limits.tokens_per_minute
        if not self.entries or not (too_many or too_long):
            return 0.0
        return self.entries[0][0] + WINDOW_S - now_s
