"""Decides when a notice is tried again, and limits the notices of a sink. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# A notice that is a day late still shows what to look at in the morning; a later one does not.
GIVE_UP_AFTER_S = 24 * 3600.0
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 3600.0  # also the limit of a sink's Retry-After
# Slack takes one message a second; a reader far fewer.
BURST = 10
EVERY_S = 6.0
IN_A_MESSAGE_MAX = 1000  # notices, some 40 bytes each beside those that are described in full


def retry_after_s(
    tries: int,
    *,
    asked_s: float,
    chance: float,
) -> float:
    """Returns the seconds until the next try. asked_s: the sink's Retry-After, 0 = absent. chance:
    in [0, 1), spreads notices so that they are not sent all at once.
    """
    base_s = min(RETRY_FIRST_S * 4.0 ** min(tries - 1, 16), RETRY_MAX_S)
    return max(base_s * (0.75 + chance / 2), min(asked_s, RETRY_MAX_S))


@dataclass(slots=True)
class SinkPace:
    """The rate limit of a sink: a bucket of tokens, one for each message, and its recent
    failures.
    """

    filled_at_s: float
    tokens: float = BURST
    failures: int = 0  # in a row
    held_until_s: float = 0.0

    def ready_at_s(self, now_s: float) -> float:
        """Returns when the next message may be sent."""
        self._fill(now_s)
        # A little more than the token takes: sums of floats must not end just before it.
        wait_s = 0.0 if self.tokens >= 1.0 else (1.0 - self.tokens) * EVERY_S + 0.001
        return max(self.held_until_s, now_s + wait_s)

    def room(self, now_s: float) -> int:
        """Messages that may go now, one after the other."""
        self._fill(now_s)
        if now_s >= self.held_until_s:
            return int(self.tokens)
        return 0

    def take(self) -> None:
        self.tokens -= 1.0

    def delivered(self) -> None:
        self.failures = 0
        self.held_until_s = 0.0

    def failed(
        self,
        now_s: float,
        *,
        asked_s: float,
        chance: float,
    ) -> None:
        self.failures += 1
        self.held_until_s = now_s + retry_after_s(self.failures, asked_s=asked_s, chance=chance)

    def idle(self, now_s: float) -> bool:
        """Returns true if the bucket equals that of a sink never used."""
        self._fill(now_s)
        return self.tokens >= BURST and not self.failures

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self.filled_at_s)  # a clock that was set back adds no tokens
        self.filled_at_s = now_s
        self.tokens = min(float(BURST), self.tokens + passed_s / EVERY_S)
