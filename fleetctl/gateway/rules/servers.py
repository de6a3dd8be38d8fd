"""Chooses the server of the next request, and how long a failing server rests; pure.

A server rests while it is unreachable, or while several callers get no answer. Prompts of one
caller that no server can answer prove no fault of a server, and the last one that is awake never
rests for its answers: that would help no caller. A probe ends a rest, never a caller's request.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.burst import Burst
from fleetctl.gateway.rules.concurrency import UNKNOWN_SLOTS, ServerPace
from fleetctl.gateway.rules.container_sleep import NOBODY_THERE, ContainerSleep
from fleetctl.specs.values.model_urls import base_of

FAILURES_IN_A_ROW = 3
CALLERS = 2  # callers whose failures are a server's: one caller's may all be of its own prompts
REST_S = 5.0
REST_MAX_S = 60.0
OLLAMA_SLOTS = 1  # the default OLLAMA_NUM_PARALLEL of a server


@dataclass(eq=False, slots=True)
class UpstreamServer:
    """A server of an endpoint. slots: as declared, or the most that is tried; declared: the spec
    has a number.
    """

    url: str  # as base_of spells it
    slots: int
    api: str = "openai"
    declared: bool = True
    pace: ServerPace = field(default_factory=lambda: ServerPace(1))
    burst: Burst = field(default_factory=Burst)
    in_flight: int = 0
    failures: int = 0  # since its last answer
    failing: set[str] = field(default_factory=set)  # callers, since then
    rest_s: float = 0.0  # the last rest; a further one is twice as long
    resting_until_s: float = 0.0
    resting: bool = False  # until a look finds it there
    stream_usage: bool = True  # the server accepts `stream_options`
    # Models, as it calls them, that take `max_completion_tokens` in place of `max_tokens`.
    completion_tokens: set[str] = field(default_factory=set)
    sleep: ContainerSleep | None = None  # set for a Function, whose containers start when called
    # URL of the proxy for requests; may hold a password
    proxy: str | None = field(default=None, repr=False)
    key: str = field(default="", repr=False)  # the key of its containers

    def __post_init__(self) -> None:
        self.pace = ServerPace(self.slots, trying=not self.declared)

    def declare(
        self,
        slots: int,
        api: str,
        *,
        declared: bool,
        auto: bool,
    ) -> None:
        self.slots = slots
        self.api = api
        self.declared = declared
        self.pace.declare(slots, trying=auto or not declared)

    @property
    def room(self) -> int:
        return self.pace.limit - self.in_flight

    @property
    def load(self) -> float:
        return self.in_flight / self.pace.limit

    @property
    def at_fault(self) -> bool:
        """Returns True if the recent failures are the server's fault, not that of one caller's
        prompts.
        """
        return self.failures >= FAILURES_IN_A_ROW and len(self.failing) >= CALLERS

    def succeeded(self) -> None:
        self.failures = 0
        self.rest_s = 0.0
        self.resting_until_s = 0.0
        self.failing.clear()
        self.resting = False

    def refused(self, now_s: float) -> None:
        """Records a refused connection. A Function whose container is gone is not a failing
        server.
        """
        if self.sleep is not None:
            self.sleep.doze()
        else:
            self.rest(now_s)

    def failed(
        self,
        now_s: float,
        *,
        caller: str,
        status: int | None,
        last: bool,
    ) -> None:
        """Records a request without an answer, or with an error of the server's own.

        caller: the sender of the request. status: status of the error, if any. last: no other
        server is awake.
        """
        if self.sleep is not None and (status is None or status in NOBODY_THERE):
            self.sleep.doze()
            return
        self.failures += 1
        self.failing.add(caller)
        if self.at_fault and not last:
            self.rest(now_s)

    def outdone(
        self,
        now_s: float,
        run: str,
        *,
        last: bool,
    ) -> None:
        """Records that another server answered a request which failed here: the prompt is not to
        blame.
        """
        self.failing.add(run)
        if self.at_fault and not last:
            self.rest(now_s)

    def rest(self, now_s: float) -> None:
        if self.resting_until_s > now_s:
            return  # sent before the rest began: the same fault
        self.rest_s = min(REST_MAX_S, self.rest_s * 2 or REST_S)
        self.resting_until_s = now_s + self.rest_s
        self.resting = True

    def record_probe(self, now_s: float, *, there: bool) -> None:
        """A look at it after its rest."""
        if there:
            self.resting = False
            self.failures = 0
            self.failing.clear()
        else:
            self.rest(now_s)


def read_server(
    spec: Mapping[str, Any],
    row: Mapping[str, Any],
    known: UpstreamServer | None,
) -> UpstreamServer:
    """Returns the same object as before an update, so that requests in flight stay counted."""
    url = base_of(row["url"])
    api = row.get("api") or spec.get("api") or "openai"
    slots = row.get("slots")
    declared = slots is not None or api == "ollama"
    slots = int(slots or (OLLAMA_SLOTS if api == "ollama" else UNKNOWN_SLOTS))
    server = known or UpstreamServer(url, slots, api, declared)
    server.declare(slots, api, declared=declared, auto=spec.get("concurrency") == "auto")
    if row.get("function"):
        server.sleep = server.sleep or ContainerSleep()
        server.sleep.declare(row["function"])
    return server


def choose_server(
    servers: Iterable[UpstreamServer],
    prefer: int | None = None,
    *,
    api: str = "",
    failed: Collection[UpstreamServer] = (),
) -> UpstreamServer | None:
    """Returns the least busy server that is awake and has capacity.

    prefer: a hash of the first message. api: only servers of this protocol. failed: servers where
    the request failed already, used again only if no other is awake.
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
