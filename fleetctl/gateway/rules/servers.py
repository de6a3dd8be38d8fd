"""Which server takes the next request, and how long a failing one rests; pure.

A server rests where nobody can reach it, or where several callers get no answer. Prompts of one
caller that no server can answer prove nothing against a server, and the last one that is awake
never rests for its answers: nobody would be helped. A look at it ends a rest, no caller's request.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.burst import Burst
from fleetctl.gateway.rules.concurrency import UNKNOWN_SLOTS, Pace
from fleetctl.gateway.rules.sleep import NOBODY_THERE, Sleep

FAILURES_IN_A_ROW = 3
CALLERS = 2  # whose failures are a server's: one caller's may all be of its own prompts
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
    failures: int = 0  # since its last answer
    failing: set[str] = field(default_factory=set)  # callers, since then
    rest_s: float = 0.0  # the last rest; a further one is twice as long
    resting_until_s: float = 0.0
    resting: bool = False  # until a look finds it there
    stream_usage: bool = True  # it takes `stream_options`
    # Models, as it calls them, that take `max_completion_tokens` in place of `max_tokens`.
    completion_tokens: set[str] = field(default_factory=set)
    sleep: Sleep | None = None  # of a Function, whose containers come when it is asked
    proxy: str | None = field(default=None, repr=False)  # by which it is asked; may hold a password
    key: str = field(default="", repr=False)  # that its containers ask for

    def __post_init__(self) -> None:
        self.pace = Pace(self.slots, trying=not self.declared)

    def declare(self, slots: int, api: str, *, declared: bool, auto: bool) -> None:
        self.slots, self.api, self.declared = slots, api, declared
        self.pace.declare(slots, trying=auto or not declared)

    @property
    def room(self) -> int:
        return self.pace.limit - self.in_flight

    @property
    def load(self) -> float:
        return self.in_flight / self.pace.limit

    @property
    def at_fault(self) -> bool:
        """Whether what failed there lately is no fault of one caller's prompts."""
        return self.failures >= FAILURES_IN_A_ROW and len(self.failing) >= CALLERS

    def succeeded(self) -> None:
        self.failures, self.rest_s, self.resting_until_s = 0, 0.0, 0.0
        self.failing.clear()
        self.resting = False

    def refused(self, now_s: float) -> None:
        """Nobody could connect to it. A Function whose container is gone is no failing server."""
        if self.sleep is not None:
            self.sleep.doze()
        else:
            self.rest(now_s)

    def failed(self, now_s: float, *, caller: str, status: int | None, last: bool) -> None:
        """It was asked, and gave no answer, or an error of its own.

        caller: whose request it was. status: of the error, if any. last: no other is awake."""
        if self.sleep is not None and (status is None or status in NOBODY_THERE):
            self.sleep.doze()
            return
        self.failures += 1
        self.failing.add(caller)
        if self.at_fault and not last:
            self.rest(now_s)

    def outdone(self, now_s: float, run: str, *, last: bool) -> None:
        """Another server answered what this one could not: the prompt is not to blame."""
        self.failing.add(run)
        if self.at_fault and not last:
            self.rest(now_s)

    def rest(self, now_s: float) -> None:
        if self.resting_until_s > now_s:
            return  # asked before it began to rest: the same fault
        self.rest_s = min(REST_MAX_S, self.rest_s * 2 or REST_S)
        self.resting_until_s = now_s + self.rest_s
        self.resting = True

    def found(self, now_s: float, *, there: bool) -> None:
        """A look at it after its rest."""
        if there:
            self.resting, self.failures = False, 0
            self.failing.clear()
        else:
            self.rest(now_s)


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
    servers: Iterable[Server],
    prefer: int | None = None,
    *,
    api: str = "",
    failed: Collection[Server] = (),
) -> Server | None:
    """The least busy of those that are awake and have room. prefer: a hash of the first message;
    api: only servers of that protocol; failed: where the request failed already, asked again only
    where no other is awake.
    """
    everyone = [it for it in servers if not api or it.api == api]
    awake = [it for it in everyone if not it.resting]
    awake = [it for it in awake if it not in failed] or awake
    awake = [it for it in awake if it.room > 0]
    if not awake:
        return None
    best = min(awake, key=lambda it: it.load)
    if prefer is not None:
        favourite = everyone[prefer % len(everyone)]
        # Preferred only while as free as the best: a shared system prompt would fill one server.
        if favourite in awake and favourite.load <= best.load:
            return favourite
    return best
