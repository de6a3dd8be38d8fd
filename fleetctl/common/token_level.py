"""The level of a token bucket: so many calls a second, and a burst after a pause. Pure: the caller
reads the clock and waits.

Used by the rate limiter before providers, by creates at a cloud, and by the guard of the server.
"""

from __future__ import annotations


class TokenLevel:
    """The tokens that are left; below zero, callers wait in a line for those to come.

    burst: tokens after a long pause. A burst below one call would never let any pass.
    """

    __slots__ = ("_burst", "_filled_at_s", "_rate", "_tokens")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate = rate_per_s
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._filled_at_s: float | None = None

    def left(self, now_s: float) -> float:
        """Returns the tokens that are left now."""
        passed_s = 0.0 if self._filled_at_s is None else now_s - self._filled_at_s
        # A clock that was set back brings no token, and takes none.
        return min(self._burst, self._tokens + max(0.0, passed_s) * self._rate)

    def take(self, now_s: float) -> float:
        """Takes a token and returns 0.0; or takes none, and returns the seconds until there is
        one."""
        left = self.left(now_s)
        if left < 1.0:
            self._set(left, now_s)
            return (1.0 - left) / self._rate
        self._set(left - 1.0, now_s)
        return 0.0

    def line_up(self, now_s: float) -> float:
        """Takes a token, also one that is still to come; returns the seconds to wait for it."""
        self._set(self.left(now_s) - 1.0, now_s)
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """Returns the token of a caller that does not call."""
        self._tokens += 1.0

    def _set(self, tokens: float, now_s: float) -> None:
        self._tokens = tokens
        self._filled_at_s = now_s
