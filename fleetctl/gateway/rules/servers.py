"""Chooses the server of the next request: how many it carries at once, how long a failing one
rests, whether its container sleeps, and how it is reached. Pure.

A server rests while it is unreachable, or while several callers get no answer. Prompts of one
caller that no server can answer prove no fault of a server, and the last one that is awake never
rests for its answers: that would help no caller. A probe ends a rest, never a caller's request.

A burst shows how many requests a server carries at once: requests that began while it had answered
none of them. A server with one slot answers them in the order they came, each as long after the
last as the first took; one with several answers some together, or out of order.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from fleetctl.specs.values.model_urls import base_of, url_of

LEAST, MOST = 6, 32  # requests of a burst
EVEN = 0.5  # of the usual step, the shortest that a step may be
OUT_OF_ORDER_MAX = 0.2  # of all pairs; connections that are made at once overtake each other

BUSY = (408, 429, 503)
UNKNOWN_SLOTS = 64  # tried at most where `slots` is left out
FIRST = 8  # of a server of unknown slots; doubled at each full round until it is too much
SLOWER, MORE = 2.0, 1.1  # twice as slow, without a tenth more answers a second, is too much


# A container starts when it is called and stops some time after the last answer. So only a call may
# wake a sleeping Function, and no request is sent just to find out its state.

KEY = "x-fleetctl-key"  # header, of fleetctl_server.py before each server
STATE = "X-Fleetctl-Server"  # header of its answers
UP = "up"
FAILED = "failed"
READY_PATH = "/.fleetctl/ready"
# Statuses of a proxy before a container that is gone, or that is not there yet.
NOBODY_THERE = (502, 503, 504)
# A container counts as up until this margin before the moment at which it may have stopped.
MARGIN_S_MAX = 5.0
MARGIN_SHARE = 0.2
START_REST_S, START_REST_MAX_S = (
    30.0,
    960.0,
)  # after a start that failed: each costs its container's time
STARTUP_SLACK_S = 60.0  # to find a machine, and to report that the server did not become ready

ASLEEP = "Asleep"
STARTING = "Starting"
AWAKE = "Ready"
BROKEN = "ServerFailed"
BLOCKED = "Blocked"

FAILURES_IN_A_ROW = 3
CALLERS = 2  # callers whose failures are a server's: one caller's may all be of its own prompts
REST_S = 5.0
REST_MAX_S = 60.0
OLLAMA_SLOTS = 1  # the default OLLAMA_NUM_PARALLEL of a server

AUTHORIZATION = "Authorization"


@dataclass(slots=True)
class Burst:
    """A burst of requests. at_once: size of the last burst that was answered one at a
    time; else 0.
    """

    at_once: int = 0
    _open: bool = True  # no request is answered yet
    _begun: dict[int, float] = field(default_factory=dict)
    _ended: list[tuple[int, float]] = field(default_factory=list)

    def begin(self, request: int, now_s: float) -> None:
        if self._open and len(self._begun) < MOST:
            self._begun[request] = now_s

    def end(
        self,
        request: int,
        now_s: float,
        *,
        answered: bool,
        idle: bool,
    ) -> None:
        """Records the end of a request. idle: no other request is in flight, so that the next one
        begins a burst.
        """
        if request in self._begun:
            self._open = False
            if answered:
                self._ended.append((request, now_s))
            else:
                del self._begun[request]
            if len(self._ended) == len(self._begun) >= LEAST:
                one = one_at_a_time(list(self._begun.items()), self._ended)
                self.at_once = len(self._ended) if one else 0
        if idle:
            self._open = True
            self._begun = {}
            self._ended = []


def one_at_a_time(begun: list[tuple[int, float]], ended: list[tuple[int, float]]) -> bool:
    """Returns True if requests were answered one after another.

    begun, ended: (request number, seconds), each in the order in which they happened.
    """
    place = {request: n for n, (request, _) in enumerate(begun)}
    order = [place[request] for request, _ in ended]
    pairs = [a > b for n, a in enumerate(order) for b in order[n + 1 :]]
    first_s = ended[0][1] - dict(begun)[ended[0][0]]
    times = [at_s for _, at_s in ended]
    steps = [after - before for before, after in itertools.pairwise(times)]
    usual_s = statistics.median(steps)
    even = min(steps) >= EVEN * usual_s and usual_s >= EVEN * first_s
    return even and sum(pairs) <= OUT_OF_ORDER_MAX * len(pairs)


@dataclass(slots=True)
class ServerPace:
    """The limit of concurrent requests of a server. `limit` stays between 1 and `most`: halved by
    a busy server, raised after a full round, which is `limit` answers to requests that found the
    server at its limit.

    trying: the capacity is not declared, so the times of the answers count, too.
    """

    most: int
    trying: bool = False
    limit: int = 0
    _doubling: bool = False
    _answers: int = 0
    _seconds: float = 0.0  # of the answers of this round
    _round_at_s: float = 0.0
    _halved_at_s: float = float("-inf")
    # (seconds an answer, answers a second), or not known yet
    _best: tuple[float, float] | None = field(default=None)

    def __post_init__(self) -> None:
        self.limit = self.limit or (min(FIRST, self.most) if self.trying else self.most)
        self._doubling = self.trying

    def declare(self, most: int, *, trying: bool) -> None:
        """Sets the limit of the current spec; keeps the limit that was found as far as it fits."""
        if (most, trying) == (self.most, self.trying):
            return
        first = trying and not self.trying
        self.limit = min(FIRST if first else self.limit, most) if trying else most
        self._doubling = first or (trying and self._doubling)
        self.most = most
        self.trying = trying
        self._best = None

    def record_answer(
        self,
        now_s: float,
        took_s: float,
        *,
        full: bool,
    ) -> None:
        """Records an answer. full: the request found the server at its limit; answers to other
        requests are no evidence about the limit.
        """
        if not full:
            return
        if not self._answers:
            self._round_at_s = max(self._round_at_s, now_s - took_s)
        self._answers += 1
        self._seconds += took_s
        if self._answers < self.limit:
            return
        each_s = self._seconds / self._answers
        rate = self._answers / max(1e-6, now_s - self._round_at_s)
        self._answers = 0
        self._seconds = 0.0
        self._round_at_s = now_s
        if self.trying and self._is_too_much(each_s, rate):
            self._halve(now_s)
        elif self.limit < self.most:
            self.limit = min(self.most, self.limit * 2 if self._doubling else self.limit + 1)

    def failed(
        self,
        status: int | None,
        now_s: float,
        *,
        begun_s: float,
    ) -> None:
        """Records a failure; `status` None is a failed connection: that server rests, the others
        carry as much. Requests that began before the last halving are no evidence about the load
        since.
        """
        self._answers = 0
        self._seconds = 0.0
        if status in BUSY and begun_s >= self._halved_at_s:
            self._halve(now_s)

    def _is_too_much(self, each_s: float, rate: float) -> bool:
        if self._best is None:
            self._best = each_s, rate
            return False
        least_s, most = self._best
        self._best = min(least_s, each_s), max(most, rate)
        return each_s >= SLOWER * least_s and rate <= MORE * most

    def _halve(self, now_s: float) -> None:
        # Compared again from here: longer prompts are slower, too, at whatever limit.
        self.limit = max(1, self.limit // 2)
        self._doubling = False
        self._best = None
        self._halved_at_s = now_s


@dataclass(slots=True)
class ContainerSleep:
    """The sleep state of a Function.

    name: `function/vllm`. warm: some container is always there. blocked: reason why the Function
    must not be called, or empty. why: reason of the last failed start. Times are of one monotonic
    clock.
    """

    name: str = ""
    startup_s: float = 0.0
    scaledown_s: float = 0.0
    warm: bool = False
    blocked: str = ""
    why: str = ""
    asking: int = 0  # calls under way
    starting_since_s: float | None = None
    rest_s: float = 0.0
    resting_until_s: float = 0.0
    _up: bool = False
    _active_s: float = float("-inf")

    def declare(self, row: Mapping[str, Any]) -> None:
        self.name, self.warm = str(row["name"]), bool(row.get("warm"))
        self.startup_s = float(row["startupSeconds"])
        self.scaledown_s = float(row["scaledownSeconds"])
        self.blocked = str(row.get("blocked") or "")

    def state(self, now_s: float) -> str:
        if self.blocked:
            return BLOCKED
        if self.starting_since_s is not None:
            return STARTING
        if self.resting_until_s > now_s:
            return BROKEN
        if self.awake(now_s):
            return AWAKE
        return ASLEEP

    def awake(self, now_s: float) -> bool:
        margin_s = min(MARGIN_S_MAX, MARGIN_SHARE * self.scaledown_s)
        lately = now_s < self._active_s + self.scaledown_s - margin_s
        return self._up and (lately or self.asking > 0 or self.warm)

    def note_awake(self, now_s: float) -> None:
        self._up = True
        self._active_s = now_s
        self.starting_since_s = None
        self.why = ""
        self.rest_s = 0.0
        self.resting_until_s = 0.0

    def active(self, now_s: float) -> None:
        self._active_s = now_s

    def doze(self) -> None:
        """Its container is gone, or does not answer."""
        self._up = False

    def broke(self, why: str, now_s: float) -> None:
        """A start failed: the next one waits."""
        self._up = False
        self.starting_since_s = None
        self.why = why
        self.rest_s = min(START_REST_MAX_S, self.rest_s * 2 or START_REST_S)
        self.resting_until_s = now_s + self.rest_s

    def describe(self, now_s: float) -> str:
        """Describes the state in a sentence; empty while the server answers."""
        match self.state(now_s):
            case "Asleep":
                last = f"; its last did not become ready: {self.why}" if self.why else ""
                return f"{self.name} is asleep: the next call starts a container{last}"
            case "Starting":
                return f"starting a container of {self.name}"
            case "Blocked":
                return self.blocked
            case "ServerFailed":
                return f"a container of {self.name} did not become ready: {self.why}"
        return ""


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

    def note_outdone(
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


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a server. headers: with the key. query: `name=value&...`, of each URL."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: str = ""

    def url(
        self,
        base: str,
        path: str,
        *,
        api: str = "openai",
    ) -> str:
        found = url_of(base, path, api=api)
        if not self.query:
            return found
        return f"{found}{'&' if '?' in found else '?'}{self.query}"


def read_access(spec: Mapping[str, Any], key: str) -> Access:
    headers = dict(spec.get("headers") or {})
    if key:
        name = str((spec.get("apiKey") or {}).get("header") or AUTHORIZATION)
        headers = {it: value for it, value in headers.items() if it.lower() != name.lower()}
        headers[name] = f"Bearer {key}" if name.lower() == AUTHORIZATION.lower() else key
    return Access(headers, urlencode(spec.get("query") or {}))
