"""Which server takes the next request, and how long a failing one rests; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.burst import Burst
from fleetctl.gateway.rules.concurrency import UNKNOWN_SLOTS, Pace
from fleetctl.gateway.rules.sleep import NOBODY_THERE, Sleep

FAILURES_IN_A_ROW = 3
REST_S = 5.0
REST_MAX_S = 60.0
OLLAMA_SLOTS = 1  # OLLAMA_NUM_PARALLEL of a server that nobody told another number


@dataclass(eq=False, slots=True)
class Server:
    """slots: as declared, or the most that is tried; declared: somebody did."""

    url: str  # without a trailing `/` or `/v1`
    slots: int
    api: str = "openai"
    declared: bool = True
    pace: Pace = field(default_factory=lambda: Pace(1))
    burst: Burst = field(default_factory=Burst)
    in_flight: int = 0
    failures: int = 0
    rest_s: float = 0.0
    resting_until_s: float = 0.0
    stream_usage: bool = True  # it takes `stream_options`
    sleep: Sleep | None = None  # of a Function, whose containers come when it is asked
    key: str = field(default="", repr=False)  # that its containers ask for

    def __post_init__(self) -> None:
        self.pace = Pace(self.slots, trying=not self.declared)

    def declare(self, slots: int, api: str, *, declared: bool, auto: bool) -> None:
        self.slots, self.api, self.declared = slots, api, declared
        self.pace.declare(slots, trying=auto or not declared)

    @property
    def room(self) -> int:
        """One that has rested is asked once, and the others wait for what becomes of it."""
        return (1 if self.rest_s else self.pace.limit) - self.in_flight

    @property
    def load(self) -> float:
        return self.in_flight / self.pace.limit

    def succeeded(self) -> None:
        self.failures, self.rest_s, self.resting_until_s = 0, 0.0, 0.0

    def failed(self, now_s: float, *, refused: bool, status: int | None = None) -> None:
        """`refused`: the connection was; else an answer of 5xx, three of which make it rest.
        status: of the answer, if any. A Function whose container is gone is no failing server.
        """
        if self.sleep is not None and (status is None or status in NOBODY_THERE):
            self.sleep.doze()
            return
        if self.resting_until_s > now_s:
            return  # asked before it began to rest: the same fault
        self.failures += 1
        if refused or self.rest_s or self.failures >= FAILURES_IN_A_ROW:
            self.rest_s = min(REST_MAX_S, self.rest_s * 2 or REST_S)
            self.resting_until_s = now_s + self.rest_s
            self.failures = 0


def base_of(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def read_server(spec: Mapping[str, Any], row: Mapping[str, Any], known: Server | None) -> Server:
    """The same object as before an update, so that what is in flight stays counted."""
    url, api = base_of(row["url"]), row.get("api") or spec.get("api") or "openai"
    slots = row.get("slots")
    declared = slots is not None or api == "ollama"
    slots = int(slots or (OLLAMA_SLOTS if api == "ollama" else UNKNOWN_SLOTS))
    server = known or Server(url, slots, api, declared)
    server.declare(slots, api, declared=declared, auto=spec.get("concurrency") == "auto")
    if row.get("function"):
        server.sleep = server.sleep or Sleep()
        server.sleep.declare(row["function"])
    return server


def choose(
    servers: Iterable[Server], now_s: float, prefer: int | None = None, *, api: str = ""
) -> Server | None:
    """The least busy of those that are awake and have room. prefer: a hash of the first message;
    api: only servers of that protocol.
    """
    everyone = [it for it in servers if not api or it.api == api]
    awake = [it for it in everyone if it.resting_until_s <= now_s and it.room > 0]
    if not awake:
        return None
    best = min(awake, key=lambda it: it.load)
    if prefer is not None:
        favourite = everyone[prefer % len(everyone)]
        # Preferred only while as free as the best: a shared system prompt would fill one server.
        if favourite in awake and favourite.load <= best.load:
            return favourite
    return best
