"""Which server takes the next request, and how long a failing one rests; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

FAILURES_IN_A_ROW = 3
REST_S = 5.0
REST_MAX_S = 60.0


@dataclass(slots=True)
class Server:
    url: str  # without a trailing `/` or `/v1`
    slots: int
    in_flight: int = 0
    failures: int = 0
    rest_s: float = 0.0
    resting_until_s: float = 0.0

    def succeeded(self) -> None:
        self.failures, self.rest_s = 0, 0.0

    def failed(self, now_s: float, *, refused: bool) -> None:
        """`refused`: the connection was; else an answer of 5xx, three of which make it rest."""
        self.failures += 1
        if refused or self.failures >= FAILURES_IN_A_ROW:
            self.rest_s = min(REST_MAX_S, self.rest_s * 2 or REST_S)
            self.resting_until_s = now_s + self.rest_s
            self.failures = 0


def base_of(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def choose(servers: Iterable[Server], now_s: float, prefer: int | None = None) -> Server | None:
    """The fewest in flight per slot among those with room; `prefer` is a hash of the first message.

    When all rest, the first to wake is tried, since a request that waits helps nobody."""
    everyone = list(servers)
    awake = [s for s in everyone if s.resting_until_s <= now_s]
    if not awake:
        awake = [min(everyone, key=lambda s: s.resting_until_s)] if everyone else []
    room = [s for s in awake if s.in_flight < s.slots]
    if not room:
        return None
    best = min(room, key=lambda s: s.in_flight / s.slots)
    if prefer is not None:
        favourite = everyone[prefer % len(everyone)]
        # Preferred only while as free as the best: a shared system prompt would fill one server.
        if (
            favourite in room
            and favourite.in_flight / favourite.slots <= best.in_flight / best.slots
        ):
            return favourite
    return best
