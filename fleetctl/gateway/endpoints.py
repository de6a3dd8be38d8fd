"""An endpoint as the controller sent it last, and the slots of its servers. An update keeps who
waits, what is in flight and what was found out.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.common.proxies import proxy_of
from fleetctl.gateway.rules.limits import Limits, Minute, read_limits
from fleetctl.gateway.rules.queue import FairQueue
from fleetctl.gateway.rules.retry import Retry, read_retry
from fleetctl.gateway.rules.servers import Server, base_of, choose, read_server

SAMPLES_MAX = 512  # of waiting and answering times; enough for a p95
TIMEOUT_S = 60.0
LOOK_S = 0.25  # between two looks at servers that all rest
WAITING_LONG = 4  # requests behind a server that takes one at a time


@dataclass(frozen=True, slots=True)
class Grant:
    """tree: the run whose limits count. uid: of the object that pays."""

    run: str
    tree: str
    uid: str
    owner: str  # namespace/object: whose turn it is
    namespace: str
    endpoints: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Waiter:
    owner: str
    run: str
    api: str  # of the servers that can answer it; "" any
    prefer: int | None
    failed: Collection[Server]  # at which it failed already
    since_s: float
    future: "asyncio.Future[Server | None]"  # None: nobody is there who could

    @property
    def line(self) -> str:
        return " ".join((self.api, self.run, *sorted(it.url for it in self.failed)))


@dataclass(slots=True)
class Times:
    waiting_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    answer_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))


def told(row: Mapping[str, Any]) -> tuple[object, ...]:
    """What an update is needed for a change of."""
    return row["spec"], row.get("key") or "", row.get("keys") or {}


Look = Callable[["Endpoint", Server], Awaitable[bool]]  # whether it is there


class Endpoint:
    """Whoever acquires a server releases it. look: asks a server that has rested, in place of a
    caller's request.
    """

    def __init__(self, row: Mapping[str, Any], look: Look) -> None:
        self._ask = look
        self._looks: dict[Server, asyncio.Task[None]] = {}  # under way
        self.name, self.namespace = str(row["name"]), str(row["namespace"])
        self.minute, self.times = Minute(), Times()
        self.waiting: FairQueue[Waiter] = FairQueue()
        self.most_waiting = 0  # since it was declared; what a server with one slot kept waiting
        self.running: Counter[str] = Counter()  # by run
        self.in_flight = 0  # of servers that are not declared any more, too
        self.servers: list[Server] = []
        self._alarm: asyncio.TimerHandle | None = None
        self.update(row)

    def update(self, row: Mapping[str, Any]) -> None:
        self.told = told(row)
        self.spec: Mapping[str, Any] = row["spec"]
        self.key = str(row.get("key") or "")
        self.limits: Limits = read_limits(self.spec)
        self.retry: Retry = read_retry(self.spec)
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
        """It is declared no more: who waits for it waits for nothing."""
        self.servers = []
        self._refuse(lambda _: True)
        for look in self._looks.values():
            look.cancel()

    @property
    def concurrency(self) -> int:
        """Requests that it carries at once now."""
        carried, most = sum(it.pace.limit for it in self.servers), self.spec.get("concurrency")
        return min(most, carried) if isinstance(most, int) else carried

    def serves(self, api: str) -> bool:
        return any(not api or it.api == api for it in self.servers)

    def alone(self, server: Server) -> bool:
        """Whether no other server of it is awake."""
        return all(it is server or it.resting for it in self.servers)

    async def acquire(
        self, grant: Grant, api: str, prefer: int | None, failed: Collection[Server] = ()
    ) -> Server | None:
        """One that did not fail this request before, while there is such a one. None: all its
        servers rested for as long as a request may take, or it is declared no more.
        """
        if not self.servers:
            return None
        future: asyncio.Future[Server | None] = asyncio.get_running_loop().create_future()
        now_s = time.monotonic()
        waiter = Waiter(grant.owner, grant.run, api, prefer, tuple(failed), now_s, future)
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
            self.hand_out()  # who came after it stood behind it
            raise

    def release(self, run: str, server: Server) -> None:
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
            if choose(self.servers) is None:
                break
            waiter = self.waiting.take(self._may)
            if waiter is None:
                break
            server = choose(self.servers, waiter.prefer, api=waiter.api, failed=waiter.failed)
            assert server is not None
            server.in_flight += 1
            self.in_flight += 1
            self.running[waiter.run] += 1
            waiter.future.set_result(server)
        if self.waiting and self._alarm is None and any(it.resting for it in self.servers):
            self._alarm = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _may(self, waiter: Waiter) -> bool:
        most = self.limits.per_task_concurrency
        if waiter.future.done() or (most is not None and self.running[waiter.run] >= most):
            return False
        if not waiter.api and not waiter.failed:
            return True
        return choose(self.servers, api=waiter.api, failed=waiter.failed) is not None

    def _look(self) -> None:
        """One that has rested is looked at; who waited for too long is told that none woke."""
        self._alarm = None
        now_s = time.monotonic()
        for server in self.servers:
            if server.resting and server.resting_until_s <= now_s and server not in self._looks:
                self._looks[server] = asyncio.ensure_future(self._wake(server))
        self.hand_out()
        if all(it.resting for it in self.servers):
            late_s = now_s - self.timeout_s
            self._refuse(lambda it: it.since_s <= late_s)

    async def _wake(self, server: Server) -> None:
        try:
            there = await self._ask(self, server)
        finally:
            self._looks.pop(server, None)
        if server.resting:  # an answer of what was asked before has not shown it
            server.found(time.monotonic(), there=there)
        self.hand_out()

    def _refuse(self, late: Callable[[Waiter], bool]) -> None:
        for waiter in [it for it in self.waiting if late(it)]:
            self.waiting.discard(waiter.owner, waiter, waiter.line)
            if not waiter.future.done():
                waiter.future.set_result(None)

    def knows(self, model: str) -> bool:
        return model in (self.spec.get("models") or {})

    @property
    def usual_model(self) -> str:
        """What is asked where a request names none; empty where the server has to know."""
        return next(iter(self.spec.get("models") or {}), "")

    def served_name(self, model: str) -> str:
        """What the servers call a model that a task asks for."""
        return str((self.spec.get("models") or {}).get(model, model))
