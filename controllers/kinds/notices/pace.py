"""When a notice is tried again, and how many a sink gets. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# A notice that is a day late still says what to look at in the morning; one that is later does not.
GIVE_UP_AFTER_S = 24 * 3600.0
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 3600.0  # what a sink asks for by Retry-After, too
# Slack takes one message a second; a person reads far fewer.
BURST = 10
EVERY_S = 6.0
IN_A_MESSAGE_MAX = 1000  # notices, some 40 bytes each beside those that are told whole


def retry_after_s(tries: int, *, asked_s: float, chance: float) -> float:
    """Until the next try, after so many. asked_s: what the sink asks for, 0 = nothing. chance: in
    [0, 1), for many notices not to come at once.
    """
    base_s = min(RETRY_FIRST_S * 4.0 ** min(tries - 1, 16), RETRY_MAX_S)
    return max(base_s * (0.75 + chance / 2), min(asked_s, RETRY_MAX_S))


@dataclass(slots=True)
class Pace:
    """Of one sink: a bucket of tokens, one for each message, and how it has failed of late."""

    filled_at_s: float
    tokens: float = BURST
    failures: int = 0  # in a row
    held_until_s: float = 0.0

    def ready_at_s(self, now_s: float) -> float:
        """When the next message may go."""
        self._fill(now_s)
        # A little more than the token takes: sums of floats must not end just before it.
        wait_s = 0.0 if self.tokens >= 1.0 else (1.0 - self.tokens) * EVERY_S + 0.001
        return max(self.held_until_s, now_s + wait_s)

    def room(self, now_s: float) -> int:
        """Messages that may go now, one after the other."""
        self._fill(now_s)
        return int(self.tokens) if now_s >= self.held_until_s else 0

    def take(self) -> None:
        self.tokens -= 1.0

    def delivered(self) -> None:
        self.failures, self.held_until_s = 0, 0.0

    def failed(self, now_s: float, *, asked_s: float, chance: float) -> None:
        self.failures += 1
        self.held_until_s = now_s + retry_after_s(self.failures, asked_s=asked_s, chance=chance)

    def idle(self, now_s: float) -> bool:
        """As if nothing had ever been sent."""
        self._fill(now_s)
        return self.tokens >= BURST and not self.failures

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self.filled_at_s)  # a clock that was set back fills nothing
        self.filled_at_s = now_s
        self.tokens = min(float(BURST), self.tokens + passed_s / EVERY_S)
