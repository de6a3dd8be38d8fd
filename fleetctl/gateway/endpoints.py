"""An endpoint as the controller sent it last, and the slots of its servers, which wait in a queue
that is fair to objects and to their tasks. An update keeps what is under way.

An update keeps the waiters, the requests in flight and the findings about servers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fleetctl.common.proxies import proxy_of
from fleetctl.gateway.rules.failures import RetryRule, read_retry
from fleetctl.gateway.rules.servers import (
    Access,
    UpstreamServer,
    choose_server,
    read_access,
    read_server,
)
from fleetctl.gateway.rules.usage import EndpointLimits, MinuteUsage, UsageRate, read_limits
from fleetctl.specs.values.model_urls import base_of

SAMPLES_MAX = 512  # of waiting and answering times; enough for a p95
TIMEOUT_S = 60.0
LOOK_S = 0.25  # between two looks at servers that all rest
WAITING_LONG = 4  # requests behind a server that takes one at a time

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallerGrant:
    """A caller and its grant. tree: the run whose limits count. uid: uid of the object
    that pays.
    """

    run: str
    tree: str
    uid: str
    owner: str  # namespace/object: whose turn it is
    namespace: str
    endpoints: tuple[str, ...]
    traceparent: str = ""  # of the run's attempt


@dataclass(eq=False, slots=True)
class SlotWaiter:
    owner: str
    run: str
    api: str  # of the servers that can answer it; "" any
    prefer: int | None
    failed: Collection[UpstreamServer]  # at which it failed already
    since_s: float
    future: asyncio.Future[UpstreamServer | None]  # None: no server can take the request

    @property
    def line(self) -> str:
        return " ".join((self.api, self.run, *sorted(it.url for it in self.failed)))


@dataclass(slots=True)
class CallTimes:
    waiting_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    answer_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))


def comparable_fields(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Returns the fields whose change needs an update."""
    return row["spec"], row.get("key") or "", row.get("keys") or {}


Look = Callable[["GatewayEndpoint", UpstreamServer], Awaitable[bool]]  # whether it is there


class GatewayEndpoint:
    """An endpoint with its servers. A caller of `acquire` must release the server.

    look: probes a server that has rested, instead of a caller's request.
    """

    def __init__(self, row: Mapping[str, Any], look: Look) -> None:
        self._ask = look
        self._looks: dict[UpstreamServer, asyncio.Task[None]] = {}  # under way
        self.name, self.namespace = str(row["name"]), str(row["namespace"])
        self.minute, self.rate, self.times = MinuteUsage(), UsageRate(), CallTimes()
        self.waiting: FairQueue[SlotWaiter] = FairQueue()
        # since it was declared; the longest queue before a server with one slot
        self.most_waiting = 0
        self.running: Counter[str] = Counter()  # by run
        self.in_flight = 0  # of servers that are not declared any more, too
        self.servers: list[UpstreamServer] = []
        self._alarm: asyncio.TimerHandle | None = None
        self.update(row)

    def update(self, row: Mapping[str, Any]) -> None:
        self.told = comparable_fields(row)
        self.spec: Mapping[str, Any] = row["spec"]
        self.access: Access = read_access(self.spec, str(row.get("key") or ""))
        self.limits: EndpointLimits = read_limits(self.spec)
        self.retry: RetryRule = read_retry(self.spec)
        self.timeout_s = float(self.spec.get("timeoutSeconds") or TIMEOUT_S)
        known = {it.url: it for it in self.servers}
        self.servers = [
            read_server(self.spec, it, known.get(base_of(it["url"])))
            for it in self.spec.get("servers") or ()
        ]
        keys = row.get("keys") or {}
        for server in self.servers:
            server.key = str(keys.get(server.url) or "")
            server.proxy = proxy_of(server.url)
        self.hand_out()

    def end(self) -> None:
        """Ends the endpoint, which is no longer declared: its waiters are released."""
        self.servers = []
        self._refuse(lambda _: True)
        for look in self._looks.values():
            look.cancel()

    @property
    def concurrency(self) -> int:
        """Requests that it carries at once now."""
        carried = sum(it.pace.limit for it in self.servers)
        most = self.spec.get("concurrency")
        if isinstance(most, int):
            return min(most, carried)
        return carried

    def serves(self, api: str) -> bool:
        return any(not api or it.api == api for it in self.servers)

    def alone(self, server: UpstreamServer) -> bool:
        """Returns True if no other server of the endpoint is awake."""
        return all(it is server or it.resting for it in self.servers)

    async def acquire(
        self,
        grant: CallerGrant,
        api: str,
        prefer: int | None,
        failed: Collection[UpstreamServer] = (),
    ) -> UpstreamServer | None:
        """Returns a server that did not fail this request before, if there is one. None: all
        servers rested for as long as a request may take, or the endpoint is no longer declared.
        """
        if not self.servers:
            return None
        future: asyncio.Future[UpstreamServer | None] = asyncio.get_running_loop().create_future()
        now_s = time.monotonic()
        waiter = SlotWaiter(
            grant.owner,
            grant.run,
            api,
            prefer,
            tuple(failed),
            now_s,
            future,
        )
        self.waiting.add(grant.owner, waiter, waiter.line)
        self.hand_out()
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        try:
            return await future
        except asyncio.CancelledError:
            self.waiting.discard(grant.owner, waiter, waiter.line)
            server = None if future.cancelled() or not future.done() else future.result()
            if server is not None:
                self.release(grant.run, server)
            self.hand_out()  # a later waiter stood behind this one
            raise

    def release(self, run: str, server: UpstreamServer) -> None:
        server.in_flight -= 1
        self.in_flight -= 1
        self.running[run] -= 1
        if not self.running[run]:
            del self.running[run]
        self.hand_out()

    def hand_out(self) -> None:
        if not self.waiting:
            return
        while self.in_flight < self.concurrency:
            if choose_server(self.servers) is None:
                break
            waiter = self.waiting.take(self._may)
            if waiter is None:
                break
            server = choose_server(
                self.servers, waiter.prefer, api=waiter.api, failed=waiter.failed
            )
            assert server is not None
            server.in_flight += 1
            self.in_flight += 1
            self.running[waiter.run] += 1
            waiter.future.set_result(server)
        if self.waiting and self._alarm is None and any(it.resting for it in self.servers):
            self._alarm = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _may(self, waiter: SlotWaiter) -> bool:
        most = self.limits.per_task_concurrency
        if waiter.future.done() or (most is not None and self.running[waiter.run] >= most):
            return False
        if not waiter.api and not waiter.failed:
            return True
        return choose_server(self.servers, api=waiter.api, failed=waiter.failed) is not None

    def _look(self) -> None:
        """Probes a server that has rested; waiters that waited too long learn that no server
        woke.
        """
        self._alarm = None
        now_s = time.monotonic()
        for server in self.servers:
            if server.resting and server.resting_until_s <= now_s and server not in self._looks:
                self._looks[server] = asyncio.ensure_future(self._wake(server))
        self.hand_out()
        if all(it.resting for it in self.servers):
            late_s = now_s - self.timeout_s
            self._refuse(lambda it: it.since_s <= late_s)

    async def _wake(self, server: UpstreamServer) -> None:
        try:
            there = await self._ask(self, server)
        finally:
            self._looks.pop(server, None)
        if server.resting:  # the answer of an earlier request has not shown it
            server.record_probe(time.monotonic(), there=there)
        self.hand_out()

    def _refuse(self, late: Callable[[SlotWaiter], bool]) -> None:
        for waiter in [it for it in self.waiting if late(it)]:
            self.waiting.discard(waiter.owner, waiter, waiter.line)
            if not waiter.future.done():
                waiter.future.set_result(None)

    def url_of(self, server: UpstreamServer, path: str) -> str:
        return self.access.url(server.url, path, api=server.api)

    def knows(self, model: str) -> bool:
        return model in (self.spec.get("models") or {})

    @property
    def usual_model(self) -> str:
        """Returns the model for requests that name no model; empty if the server has to choose."""
        return next(iter(self.spec.get("models") or {}), "")

    def served_name(self, model: str) -> str:
        """Returns the servers' name for a model that a task names."""
        return str((self.spec.get("models") or {}).get(model, model))


class FairQueue(Generic[T]):
    """A fair queue of waiters. Each waiter stands in a line, in order of arrival; either all
    waiters of a line may go, or the whole line waits.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for lines in self._waiting.values():
            for line in lines.values():
                yield from line

    def add(
        self,
        owner: str,
        waiter: T,
        line: str = "",
    ) -> None:
        lines = self._waiting.setdefault(owner, OrderedDict())
        lines.setdefault(line, OrderedDict())[waiter] = None
        self._length += 1

    def discard(
        self,
        owner: str,
        waiter: T,
        line: str = "",
    ) -> None:
        lines = self._waiting.get(owner, OrderedDict())
        if waiter not in lines.get(line, ()):
            return
        del lines[line][waiter]
        self._length -= 1
        if not lines[line]:
            del lines[line]
        if not lines:
            del self._waiting[owner]

    def take(self, may: Callable[[T], bool] = lambda _: True) -> T | None:
        """Takes the next waiter in turn that `may` go; its owner goes to the end of the round."""
        for owner, lines in self._waiting.items():
            for name, line in lines.items():
                waiter = next(iter(line))
                if may(waiter):
                    self.discard(owner, waiter, name)
                    if name in lines:
                        lines.move_to_end(name)
                    if owner in self._waiting:
                        self._waiting.move_to_end(owner)
                    return waiter
        return None
